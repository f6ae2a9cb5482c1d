//! `ordo serve`.

use server::config::{Config, Invocation, LogFormat, LogLevel, help};
use server::server::{LogLevelHook, Server, SignalWatch};
use server::service_manager::ServiceManager;
use server::session::audit::TARGET as AUDIT_TARGET;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

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
    refuse_huge_pages();
    let follow_log_level = start_logging(config.loglevel, config.log_format);
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
    let manager = ServiceManager::start()?;
    let server = Server::start(config)?;
    signals.stops(&server);
    server.follow_log_level(follow_log_level);
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
    if let Some(manager) = &manager {
        manager.follow(&server);
    }
    server.wait();
    if let Some(manager) = manager {
        manager.end();
    }
    tracing::info!("stopped: everything acknowledged is in {dir}");
    Ok(())
}

/// Has the system give small pages of memory. Records come and go, and a huge page that has one of them left
/// stays whole: with half a million short strings that is a quarter of all memory. Redis refuses huge pages
/// as well (`disable-thp`).
fn refuse_huge_pages() {
    // Kernels without huge pages refuse, and give none anyway.
    let _ = nix::sys::prctl::set_thp_disable(true);
}

/// Whether somebody wants no colours: <https://no-color.org>.
fn is_colourless() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// The filter of a level. Who asks for the audit log gets it at every one.
fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Verbose | LogLevel::Notice => "info",
        LogLevel::Warning => "warn",
    };
    EnvFilter::new(format!("{level},{AUDIT_TARGET}=info"))
}

/// Logs to standard error. `RUST_LOG` wins over `--loglevel`, until that is changed. What is returned follows
/// such changes.
fn start_logging(level: LogLevel, format: LogFormat) -> LogLevelHook {
    let first = EnvFilter::try_from_default_env().unwrap_or_else(|_| filter(level));
    let (first, handle) = reload::Layer::new(first);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // Whoever read the log may be gone: that must not stop a thread that has something to say.
        .log_internal_errors(false)
        .with_target(false);
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        // Colours are for people: what reads a file would find them in the middle of words. NO_COLOR forbids
        // them, as it does elsewhere.
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal() && !is_colourless()).boxed(),
    };
    tracing_subscriber::registry().with(first).with(lines).init();
    let present = Mutex::new(level);
    Box::new(move |level| {
        let mut present = present.lock().unwrap_or_else(PoisonError::into_inner);
        if *present != level {
            *present = level;
            // It fails only where there is no log any more.
            let _ = handle.reload(filter(level));
        }
    })
}
