//! `ordo serve`.

use server::config::{Config, Invocation, LogLevel, help};
use server::server::{Server, SignalWatch};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Serves until a signal or SHUTDOWN.
pub fn run(words: Vec<String>) -> anyhow::Result<()> {
    let config = match Config::from_args(words)? {
        Invocation::Help => {
            print!("{}", help());
            return Ok(());
        }
        Invocation::Version => {
            println!("ordo {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Invocation::Serve(config) => *config,
    };
    start_logging(config.loglevel);
    tracing::info!("Ordo {}, process {}", env!("CARGO_PKG_VERSION"), std::process::id());
    if let Some((cluster, node)) = &config.cluster {
        tracing::info!(
            "node {node} of cluster {}, delivery {}, engine {}",
            cluster.name,
            cluster.delivery,
            config.engine
        );
        for warning in &cluster.warnings {
            tracing::warn!("{warning}");
        }
    }
    for note in &config.notes {
        tracing::warn!("{note}");
    }
    let dir = config.dir.clone();
    let fsync = config.appendfsync;
    let signals = SignalWatch::start()?;
    let server = Server::start(config)?;
    signals.stops(&server);
    tracing::info!("data in {dir}: {}", server.report());
    for address in server.addresses() {
        let by = match server.tls_addresses().contains(address) {
            true => " by TLS",
            false => "",
        };
        tracing::info!("serving {address}{by}, appendfsync {fsync}");
    }
    for address in server.http_addresses() {
        tracing::info!("serving http://{address}/metrics, /readyz and /healthz");
    }
    server.wait();
    tracing::info!("stopped: everything acknowledged is in {dir}");
    Ok(())
}

/// Whether somebody wants no colours: <https://no-color.org>.
fn is_colourless() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Logs to standard error. `RUST_LOG` wins over `--loglevel`.
fn start_logging(level: LogLevel) {
    let default = match level {
        LogLevel::Debug => "debug",
        LogLevel::Verbose | LogLevel::Notice => "info",
        LogLevel::Warning => "warn",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours are for people: what reads a file would find them in the middle of words. NO_COLOR forbids
        // them, as it does elsewhere.
        .with_ansi(std::io::stderr().is_terminal() && !is_colourless())
        // Whoever read the log may be gone: that must not stop a thread that has something to say.
        .log_internal_errors(false)
        .with_target(false)
        .init();
}
