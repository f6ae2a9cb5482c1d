//! Users and what they may do.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::pure;
use crate::introspect;
use crate::table::AclCommand as A;

const fn acl(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Server, run).noscript().always()
}
const fn users(name: &'static str, arity: i16, command: A) -> Command {
    acl(name, arity, Run::Acl(command)).admin()
}
const fn node(name: &'static str, arity: i16, command: C) -> Command {
    acl(name, arity, Run::Connection(command)).admin()
}

pub(super) const ACL: &[Command] = &[
    acl("acl|cat", -2, Run::Pure(introspect::acl_cat)).about(
        "6.0.0",
        "O(N) in the number of commands",
        "Lists the categories, or the commands of one.",
    ),
    users("acl|deluser", -3, A::DelUser).about(
        "6.0.0",
        "O(N) in the number of users asked for",
        "Deletes users, and ends their connections.",
    ),
    users("acl|dryrun", -4, A::DryRun).about(
        "7.0.0",
        "O(1)",
        "Tells whether a user might run a command, without running it.",
    ),
    acl("acl|genpass", -2, Run::Connection(C::AclGenPass)).about(
        "6.0.0",
        "O(1)",
        "Makes a password that nobody guesses.",
    ),
    users("acl|getuser", 3, A::GetUser).about(
        "6.0.0",
        "O(N) in the number of the user's rules",
        "Tells what a user may do.",
    ),
    Command::new("acl|help", 2, Group::Server, Run::Pure(help)).always().about(
        "6.0.0",
        "O(1)",
        "Explains ACL.",
    ),
    users("acl|list", 2, A::List).about(
        "6.0.0",
        "O(N) in the number of users",
        "Tells what all users may do, in the format of the ACL file.",
    ),
    // It is a transaction of its own.
    node("acl|load", 2, C::AclLoad).flags(Flags::NO_MULTI).about(
        "6.0.0",
        "O(N) in the number of users",
        "Puts the users of the ACL file in place of all.",
    ),
    node("acl|log", -2, C::AclLog).about(
        "6.0.0",
        "O(N) in the number of entries shown",
        "Tells what users were not allowed at this node.",
    ),
    node("acl|save", 2, C::AclSave).about(
        "6.0.0",
        "O(N) in the number of users",
        "Writes the users to the ACL file.",
    ),
    users("acl|setuser", -3, A::SetUser).about(
        "6.0.0",
        "O(N) in the number of rules",
        "Makes a user, or changes what it may do.",
    ),
    users("acl|users", 2, A::Users).about(
        "6.0.0",
        "O(N) in the number of users",
        "Lists the names of all users.",
    ),
    acl("acl|whoami", 2, Run::Connection(C::AclWhoAmI)).about(
        "6.0.0",
        "O(1)",
        "Replies the connection's user.",
    ),
];

fn help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "ACL",
        &[
            "CAT [<category>]",
            "    The categories, or the commands of one.",
            "DELUSER <username> [<username> ...]",
            "    Deletes users.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Whether a user might run a command, without running it.",
            "GETUSER <username>",
            "    What a user may do.",
            "GENPASS [<bits>]",
            "    A password that nobody guesses, of 256 bits or as many as asked for.",
            "LIST",
            "    What all users may do, in the format of the ACL file.",
            "LOAD",
            "    Puts the users of the ACL file in place of all.",
            "LOG [<count> | RESET]",
            "    What users were not allowed at this node.",
            "SAVE",
            "    Writes the users to the ACL file.",
            "SETUSER <username> <attribute> [<attribute> ...]",
            "    Makes a user, or changes what it may do.",
            "USERS",
            "    The names of all users.",
            "WHOAMI",
            "    The connection's user.",
        ],
    )
}
