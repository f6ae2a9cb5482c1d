//! What all servers need that are started here.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where servers listen that need no network of their own.
pub(crate) const HOST: &str = "127.0.0.1";

/// A command whose process the kernel kills when the thread that starts it ends, where there is `setpriv` to
/// say so.
pub(crate) fn dying_with_us(program: &Path) -> Command {
    let known = Command::new("setpriv").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if known.is_ok_and(|status| status.success()) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        return command;
    }
    Command::new(program)
}

/// A port of the loopback interface that nobody uses now, another one at each call.
pub(crate) fn free_port() -> Result<u16> {
    server::cluster::local::free_port().context("could not find a free port")
}

/// Becomes true when somebody wants this process to end, which then has servers to end and directories to
/// remove first.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone()).context("could not watch for signals")?;
    }
    Ok(interrupted)
}
