//! The HTTP port for operators: `/healthz`, `/readyz`, `/metrics` and a console at `/` (docs/monitoring.md).
//!
//! One thread serves it, with an event loop of its own, and takes nothing from the threads that serve Redis's
//! clients: it reads counters that exist, and holds no lock for longer than INFO does. It answers from the
//! moment at which the server listens, so also while the data is being loaded.
//!
//! What strangers may cost is bounded. A connection serves one request, in [`CONNECTION_MAX`] from its first
//! byte to its last, with a head of at most [`HEAD_BYTES_MAX`]; a request's body is not read. Of connections
//! there are at most [`HTTP_CONNECTIONS_MAX`] at an address; for one more, the oldest is closed, because it
//! has waited longest without a request or without reading its reply.
//!
//! Other machines reach the port only where a token protects it. Without the token `/healthz` and `/readyz`
//! still tell their one word, which is what load balancers ask for, and the console's page can be had, which
//! tells nothing of the server.

mod console;
mod metrics;
mod paths;
mod scrape;

use crate::config::{Config, HTTP_CONNECTIONS_MAX};
use crate::net::listen::{ListenError, Place, listen_on};
use crate::shared::Shared;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use paths::Paths;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How long a connection may take for its one request and the reply.
pub const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// How long a request's line and headers may be, in bytes. hyper takes no less than 8 KiB.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Accepting is tried again after this time when it failed, most likely for want of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// The thread that serves the HTTP port. Dropping it closes the port.
pub struct HttpServer {
    paths: Arc<Paths>,
    addresses: Vec<SocketAddr>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why the HTTP port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system refused the thread, or what it needs.
    #[error("the HTTP port could not be served: {0}: raise the process's limits on threads and open files")]
    Thread(#[from] io::Error),
}

impl HttpServer {
    /// Listens and answers, as a server that is not ready. `None` where the settings ask for no HTTP port.
    ///
    /// # Errors
    /// An address cannot be had, the token cannot be read, or the system refuses a thread.
    pub fn open(config: &Config) -> Result<Option<HttpServer>, HttpError> {
        if config.http_port == 0 {
            return Ok(None);
        }
        let token = config.http_token().map_err(ListenError::Exposed)?;
        let place = Place {
            prefix: "http-",
            bind: &config.http_bind,
            port: config.http_port as u16,
            backlog: HTTP_CONNECTIONS_MAX as i32,
        };
        let sockets = listen_on(&place, |word| config.admit_open_http(word))?;
        let addresses = sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listeners = {
            let _context = runtime.enter();
            sockets.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>()?
        };
        let paths = Arc::new(Paths::new(token.as_deref()));
        let (stop, stopped) = oneshot::channel();
        let served = paths.clone();
        let thread = std::thread::Builder::new().name("ordo-http".to_owned()).spawn(move || {
            for listener in listeners {
                runtime.spawn(accept(listener, served.clone()));
            }
            // The sender is dropped to end this, and so are all tasks with the runtime.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Some(HttpServer { paths, addresses, stop: Some(stop), thread: Some(thread) }))
    }

    /// The addresses that are listened on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The server has loaded its data and serves clients: from now on it is what is told of.
    pub fn serves(&self, shared: &Arc<Shared>) {
        self.paths.serves(shared.clone());
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.take();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the HTTP port panicked: please report it, with the message above");
        }
    }
}

/// Accepts connections for ever.
async fn accept(listener: TcpListener, paths: Arc<Paths>) {
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("a connection to the HTTP port could not be accepted: {error}");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= HTTP_CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let serving = tokio::time::timeout(CONNECTION_MAX, serve(stream, paths.clone()));
        connections.push_back(tokio::spawn(serving).abort_handle());
    }
}

/// Serves one request.
async fn serve(stream: TcpStream, paths: Arc<Paths>) {
    let answer = service_fn(|request| {
        let response = paths.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!("a request to the HTTP port could not be served: {error}");
    }
}
