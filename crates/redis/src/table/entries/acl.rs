//! Users and what they may do.

use super::ConnectionCommand as C;
use super::*;
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
    acl("acl|cat", -2, Run::Pure(introspect::acl_cat)),
    users("acl|deluser", -3, A::DelUser),
    users("acl|dryrun", -4, A::DryRun),
    acl("acl|genpass", -2, Run::Connection(C::AclGenPass)),
    users("acl|getuser", 3, A::GetUser),
    Command::new("acl|help", 2, Group::Server, help!("ACL")).always(),
    users("acl|list", 2, A::List),
    // It is a transaction of its own.
    node("acl|load", 2, C::AclLoad).flags(Flags::NO_MULTI),
    node("acl|log", -2, C::AclLog),
    node("acl|save", 2, C::AclSave),
    users("acl|setuser", -3, A::SetUser),
    users("acl|users", 2, A::Users),
    acl("acl|whoami", 2, Run::Connection(C::AclWhoAmI)),
];
