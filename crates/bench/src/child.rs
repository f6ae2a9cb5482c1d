//! What a benchmark gives to each server that it starts.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A command whose process the kernel kills when the thread that starts it ends, where there is `setpriv` to
/// say so. The process logs as much as it does by default, whatever this one does.
pub(crate) fn dying_with_us(program: &Path) -> Command {
    let known = Command::new("setpriv").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let mut command = match known.is_ok_and(|status| status.success()) {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    command.env_remove("RUST_LOG");
    command
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
