//! The subcommands of ACL that read and change users, in a transaction.

use super::acting::Actor;
use super::check::dry_run;
use super::directory::{Directory, Record, key};
use super::has_spaces;
use super::user::{DEFAULT_USER, User};
use crate::errors;
use crate::table::AclCommand;
use txn::{Blob, Footprint, Outcome, ProcedureFuture, Reply, Tx};

/// What a subcommand touches.
pub(crate) fn footprint(command: AclCommand) -> Footprint {
    match command {
        AclCommand::SetUser | AclCommand::DelUser => Footprint::of_keys(Vec::new(), vec![key()]),
        _ => Footprint::of_keys(vec![key()], Vec::new()),
    }
}

/// Starts a subcommand. The arguments are the words after its name.
pub(crate) fn start(tx: Tx, command: AclCommand, args: Vec<Blob>, actor: Actor) -> ProcedureFuture {
    match command {
        AclCommand::SetUser => Box::pin(set_user(tx, args, actor)),
        AclCommand::DelUser => Box::pin(delete_users(tx, args, actor)),
        _ => Box::pin(read(tx, command, args, actor)),
    }
}

async fn set_user(mut tx: Tx, args: Vec<Blob>, actor: Actor) -> Outcome {
    let Some((name, rules)) = args.split_first() else {
        return Ok(errors::SYNTAX);
    };
    if has_spaces(name) {
        return Ok(errors::USER_NAME_WITH_SPACES);
    }
    let mut record = Record::of(tx.get_for_update(&key()).await?.as_ref());
    let mut user = match record.user(name) {
        Some(user) => User::clone(&user),
        None if name.as_bytes() == DEFAULT_USER => User::clone(&actor.default_user()),
        None => User::new(actor.all_channels()),
    };
    if let Err(error) = user.apply_all(rules, actor.all_channels()) {
        return Ok(error.reply());
    }
    record.put(name, &user);
    tx.put(&key(), record.into_value()).await?;
    actor.has_changed_users();
    Ok(Reply::OK)
}

async fn delete_users(mut tx: Tx, names: Vec<Blob>, actor: Actor) -> Outcome {
    if names.iter().any(|name| name.as_bytes() == DEFAULT_USER) {
        return Ok(errors::DEFAULT_USER_STAYS);
    }
    let mut record = Record::of(tx.get_for_update(&key()).await?.as_ref());
    let deleted = names.iter().filter(|name| record.remove(name)).count();
    if deleted > 0 {
        tx.put(&key(), record.into_value()).await?;
        actor.has_changed_users();
    }
    Ok(Reply::Integer(deleted as i64))
}

async fn read(mut tx: Tx, command: AclCommand, args: Vec<Blob>, actor: Actor) -> Outcome {
    let record = tx.get(&key()).await?;
    let all = Directory::of(record.as_ref(), &actor.default_user());
    let named = args.first().and_then(|name| all.get(name));
    Ok(match command {
        AclCommand::List => Reply::Array(all.lines().map(Reply::bulk).collect()),
        AclCommand::Users => Reply::Array(all.iter().map(|(name, _)| Reply::Bulk(name.clone())).collect()),
        AclCommand::GetUser => named.map_or(Reply::Nil, |member| member.user.to_reply()),
        AclCommand::DryRun => match (named, &args[..]) {
            (Some(member), [_, argv @ ..]) => dry_run(&member.user, argv),
            (_, [name, ..]) => {
                let mut text = String::from("ERR User '");
                errors::push_line(&mut text, name);
                text.push_str("' not found");
                Reply::error_owned(text)
            }
            _ => errors::SYNTAX,
        },
        AclCommand::SetUser | AclCommand::DelUser => errors::SYNTAX,
    })
}
