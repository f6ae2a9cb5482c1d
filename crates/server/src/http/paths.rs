//! What each path of the HTTP port answers.

use super::console::{self, Console};
use super::metrics::{Form, encode};
use super::scrape::Scrape;
use crate::readiness::{Readiness, Verdict};
use crate::shared::Shared;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
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
        let page = match path {
            "/" => Some(("text/html; charset=utf-8", console::PAGE)),
            "/console.js" => Some(("text/javascript; charset=utf-8", console::SCRIPT)),
            "/console.css" => Some(("text/css; charset=utf-8", console::STYLE)),
            _ => None,
        };
        // The page itself tells nothing of this server, and asks for the token.
        let is_open = page.is_some() || matches!(path, "/healthz" | "/readyz");
        if !is_open && !knows_token {
            return unauthorized();
        }
        if !is_open && !matches!(path, "/metrics" | "/console.json") {
            return text(StatusCode::NOT_FOUND, "there are /, /healthz, /readyz and /metrics");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD are served");
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        if let Some((content_type, body)) = page {
            let mut reply = reply(StatusCode::OK, content_type, body.to_owned());
            let policy = HeaderValue::from_static(console::POLICY);
            reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            return reply;
        }
        match path {
            "/readyz" => self.ready(knows_token),
            "/metrics" => {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
                self.metrics(Form::preferred(accept.unwrap_or_default()))
            }
            "/console.json" if self.token.is_none() && !names_an_address(request.headers().get(HOST)) => {
                text(
                    StatusCode::FORBIDDEN,
                    "without a token the console is shown at an address or at localhost only, because a page \
                 from elsewhere could ask under its own name: set --http-token-file",
                )
            }
            "/console.json" => self.console(),
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

    fn scrape(&self) -> Arc<Scrape> {
        self.scrape.get(|| Arc::new(Scrape::of(self.shared(), self.started_s)))
    }

    fn console(&self) -> Reply {
        let readiness = self.readiness.get(|| Readiness::of(self.shared()));
        let slow = self.shared().map(|shared| shared.slow_log.newest(console::SLOW_SHOWN));
        let console = Console::of(&self.scrape(), &readiness, slow.unwrap_or_default());
        match serde_json::to_string(&console) {
            Ok(body) => reply(StatusCode::OK, "application/json", body),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}: please report it")),
        }
    }

    fn metrics(&self, form: Form) -> Reply {
        let scrape = self.scrape();
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

/// Whether a request was sent to an address, or to this machine by name. An attacker's name may stand for the
/// address of this machine, and then his page may read the reply.
fn names_an_address(host: Option<&HeaderValue>) -> bool {
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
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
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_anybodys_is_no_address() {
        for (host, is_address) in [
            ("127.0.0.1:9121", true),
            ("127.0.0.1", true),
            ("[::1]:9121", true),
            ("localhost:80", true),
            ("LOCALHOST", true),
            ("evil.example:9121", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("", false),
        ] {
            let header = HeaderValue::from_static(host);
            assert_eq!(names_an_address(Some(&header)), is_address, "{host}");
        }
        assert!(!names_an_address(None));
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for (text, allowed) in [(console::PAGE, 0), (console::STYLE, 0), (console::SCRIPT, 2)] {
            // The namespace of SVG is a name.
            let names = text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!((text.matches("://").count(), names), (allowed, allowed));
        }
        let inline = ["<style", "style=", "<script>", "onclick", "innerHTML", "eval("];
        for text in [console::PAGE, console::SCRIPT] {
            assert!(inline.iter().all(|word| !text.contains(word)), "the policy forbids it");
        }
    }
}
