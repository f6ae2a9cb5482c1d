//! Commands whose replies depend on nothing but their arguments.

use super::options;
use crate::errors;
use txn::{Blob, Reply};

/// PING [message]
pub fn ping(args: &[Blob]) -> Reply {
    match args {
        [] => Reply::Status("PONG".into()),
        [message] => Reply::Bulk(message.clone()),
        _ => errors::wrong_arity_of("ping"),
    }
}

/// ECHO message
pub fn echo(args: &[Blob]) -> Reply {
    Reply::Bulk(args[0].clone())
}

/// SELECT index: there is one database, number 0.
pub fn select(args: &[Blob]) -> Reply {
    match options::integer(&args[0]) {
        Ok(0) => Reply::OK,
        Ok(_) => errors::DB_OUT_OF_RANGE,
        Err(error) => error,
    }
}

/// LOLWUT [VERSION version] [columns] [...]: ordered lanes, which never meet.
pub fn lolwut(args: &[Blob]) -> Reply {
    const COLUMNS: usize = 66;
    const COLUMNS_MAX: i64 = 160;
    let of_version = args.len() >= 2 && options::is(&args[0], "VERSION");
    let wanted = if of_version { args.get(2) } else { args.first() };
    let columns = match wanted.map(options::integer) {
        None => COLUMNS,
        Some(Ok(columns)) => columns.clamp(1, COLUMNS_MAX) as usize,
        Some(Err(error)) => return error,
    };
    let mut drawn = String::new();
    for lane in 0..5 {
        let cell = |column: usize| match (column + lane * 7) % 12 {
            0 => '>',
            1..=8 => '=',
            _ => '-',
        };
        drawn.extend((0..columns).map(cell));
        drawn.push('\n');
    }
    drawn.push_str(&format!("\nRedis ver. {}, as Ordo speaks it\n", crate::REDIS_VERSION));
    Reply::Verbatim("txt", Blob::from(drawn))
}
