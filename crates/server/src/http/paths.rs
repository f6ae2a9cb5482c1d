//! What each path of the HTTP port answers.

use super::metrics::{Form, encode};
use super::readiness::{Readiness, Verdict};
use super::scrape::Scrape;
use crate::shared::Shared;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, VARY, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use redis_surface::acl::PasswordHash;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PLAIN: &str = "text/plain; charset=utf-8";
/// What stands before the token in a request's header.
const BEARER: &str = "Bearer ";

/// What was collected is told again for this time: however often somebody asks, the server is not disturbed
/// more often.
const KEPT: Duration = Duration::from_millis(100);

/// A response: its body is whole when it begins.
pub type Reply = Response<Full<Bytes>>;

/// What the paths tell of, and who may ask.
pub struct Paths {
    /// Set once the server serves its clients.
    shared: OnceLock<Arc<Shared>>,
    /// Of the token, if one is asked for. Hashes are compared, so that the time which that takes tells
    /// nothing of the token.
    token: Option<PasswordHash>,
    /// When this process started, in seconds since 1970.
    started_s: f64,
    readiness: Kept<Readiness>,
    scrape: Kept<Arc<Scrape>>,
}

/// What was found last, and when.
struct Kept<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Mutex::new(None))
    }
}

impl<T: Clone> Kept<T> {
    /// What was found within [`KEPT`], or is found now.
    fn get(&self, find: impl FnOnce() -> T) -> T {
        let mut kept = self.0.lock();
        match &*kept {
            Some((at, found)) if at.elapsed() < KEPT => found.clone(),
            _ => {
                let found = find();
                *kept = Some((Instant::now(), found.clone()));
                found
            }
        }
    }
}

impl Paths {
    /// The paths of a server that loads its data.
    pub fn new(token: Option<&str>) -> Paths {
        let token = token.map(|token| PasswordHash::of(token.as_bytes()));
        let started_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Paths {
            shared: OnceLock::new(),
            token,
            started_s,
            readiness: Kept::default(),
            scrape: Kept::default(),
        }
    }

    /// From now on there is a server to tell of.
    pub fn serves(&self, shared: Arc<Shared>) {
        // The first one stays: there is one.
        let _ = self.shared.set(shared);
    }

    /// Answers a request by its head.
    pub fn answer<B>(&self, request: &Request<B>) -> Reply {
        let knows_token = self.knows_token(request.headers().get(AUTHORIZATION));
        let path = request.uri().path();
        if !matches!(path, "/healthz" | "/readyz") && !knows_token {
            return unauthorized();
        }
        if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
            return text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD are served");
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        match path {
            "/readyz" => self.ready(knows_token),
            "/metrics" => {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
                self.metrics(Form::preferred(accept.unwrap_or_default()))
            }
            _ => text(StatusCode::OK, "ok"),
        }
    }

    fn shared(&self) -> Option<&Shared> {
        self.shared.get().map(|shared| &**shared)
    }

    fn knows_token(&self, header: Option<&HeaderValue>) -> bool {
        let Some(token) = self.token else { return true };
        let shown = header.and_then(|header| header.to_str().ok()?.strip_prefix(BEARER));
        shown.is_some_and(|shown| PasswordHash::of(shown.trim().as_bytes()) == token)
    }

    fn ready(&self, in_full: bool) -> Reply {
        let readiness = self.readiness.get(|| Readiness::of(self.shared()));
        let status = match readiness.verdict {
            Verdict::Ready => StatusCode::OK,
            Verdict::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        match in_full {
            true => text(status, &readiness.to_string()),
            false => text(status, readiness.word()),
        }
    }

    fn metrics(&self, form: Form) -> Reply {
        let scrape = self.scrape.get(|| Arc::new(Scrape::of(self.shared(), self.started_s)));
        match encode(&scrape, form) {
            Ok(body) => {
                let mut reply = reply(StatusCode::OK, form.content_type(), body);
                reply.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                reply
            }
            Err(fmt::Error) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics could not be written: this is a bug, please report it",
            ),
        }
    }
}

fn unauthorized() -> Reply {
    let mut reply =
        text(StatusCode::UNAUTHORIZED, "show the token of http-token-file: Authorization: Bearer");
    reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    reply
}

/// A reply of some lines, or of one to which its end is added.
fn text(status: StatusCode, text: &str) -> Reply {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    reply(status, PLAIN, format!("{text}{end}"))
}

fn reply(status: StatusCode, content_type: &'static str, body: String) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // What was true once is of no use to who asks again.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
