//! The tests of a server in this process, one module a subject: as one binary they are linked once and run
//! side by side. Tests that measure the memory of their process, or that set limits for it, have binaries of
//! their own.

mod acl;
#[path = "support/authority.rs"]
mod authority;
mod chosen_keys;
mod idempotent;
mod lifecycle;
mod limits;
mod loading;
mod observe;
mod secrets;
mod session;
mod support;
mod telling;
mod tls;
