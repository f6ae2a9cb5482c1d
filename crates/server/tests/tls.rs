//! Clients that are served by TLS.
#![allow(clippy::disallowed_methods, reason = "how long a handshake may take is measured")]

use crate::authority::{Authority, Files, text};
use crate::support;
use crate::support::TestServer;
use ordo_server::client::{Answer, Client, ClientError, put_command};
use ordo_server::launcher::free_port;
use ordo_server::tls::{ClientTls, HANDSHAKE_MAX};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// A server that speaks TLS, and those who know it.
struct Secured {
    server: TestServer,
    authority: Authority,
    client: Files,
    dir: TempDir,
    data: TempDir,
}

impl Secured {
    /// A server with these settings beside its certificate's.
    fn start(settings: &[(&str, &str)]) -> Secured {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new(dir.path(), "ca");
        let server = authority.sign(dir.path(), "server");
        let client = authority.sign(dir.path(), "client");
        let port = free_port().expect("a port").to_string();
        let own = [
            ("tls-port", port.as_str()),
            ("tls-cert-file", text(&server.cert)),
            ("tls-key-file", text(&server.key)),
            ("tls-ca-cert-file", text(&authority.file)),
        ];
        let server = TestServer::start_in(data.path(), &[&own[..], settings].concat());
        Secured { server, authority, client, dir, data }
    }

    /// What a client shows that shows these files.
    fn tls(&self, own: Option<&Files>) -> ClientTls {
        let own = own.map(|files| (files.cert.as_path(), files.key.as_path()));
        ClientTls::from_files(&self.authority.file, own).expect("files")
    }

    fn try_open(&self, own: Option<&Files>) -> Result<Client, ClientError> {
        let address = self.server.address.to_string();
        Client::open_with(&address, PATIENCE, Some(&self.tls(own)))
    }

    fn open(&self) -> Client {
        self.try_open(Some(&self.client)).expect("a connection")
    }

    /// A connection, byte by byte, of one version.
    fn raw(&self, version: &'static SupportedProtocolVersion) -> Raw {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(&self.authority.file).expect("a file") {
            roots.add(root.expect("PEM")).expect("a certificate");
        }
        let chain = CertificateDer::pem_file_iter(&self.client.cert).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
        let key = PrivateKeyDer::from_pem_file(&self.client.key).expect("PEM");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .expect("a certificate");
        let name = ServerName::IpAddress(self.server.address.ip().into());
        let tls = ClientConnection::new(Arc::new(config), name).expect("a name");
        let socket = TcpStream::connect(self.server.address).expect("it accepts");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        StreamOwned::new(tls, socket)
    }

    fn certificate(&self) -> Vec<u8> {
        let mut raw = self.raw(&rustls::version::TLS13);
        raw.write_all(b"PING\r\n").expect("sent");
        raw.read_exact(&mut [0; 7]).expect("a reply");
        raw.conn.peer_certificates().expect("shown")[0].to_vec()
    }
}

type Raw = StreamOwned<ClientConnection, TcpStream>;

fn set(client: &mut Client, pairs: &[&str]) -> Answer {
    client.call(&[&["CONFIG", "SET"], pairs].concat()).expect("a reply")
}

fn text_of(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

/// Reads until the server closes; whether it reset the connection does not matter.
fn is_closed(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn commands_and_large_values_go_both_ways() {
    let secured = Secured::start(&[]);
    let mut client = secured.open();
    assert_eq!(client.call(&["PING"]).expect("a reply"), text_of("PONG"));
    let value: String = (0..10 << 20).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    assert_eq!(client.call(&["SET", "large", &value]).expect("a reply"), text_of("OK"));
    let got = client.call(&["GET", "large"]).expect("a reply");
    assert!(got == text_of(&value), "another value came back");
    // Pipelines, of more than the server reads at once.
    let commands = (0..20_000).map(|n| vec!["INCR".to_owned(), format!("n{}", n % 7)]);
    let mut sum = 0u64;
    client
        .pipeline(commands, 1000, |answer| -> Result<(), ClientError> {
            let Answer::Text(text) = answer else {
                panic!("{answer:?}");
            };
            sum += text.parse::<u64>().expect("a number");
            Ok(())
        })
        .expect("replies");
    let expected: u64 = (0..20_000u64).map(|n| n / 7 + 1).sum();
    assert_eq!(sum, expected);
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let secured = Secured::start(&[("client-output-buffer-limit", "normal 0 0 0")]);
    let mut client = secured.open();
    let value = "x".repeat(1 << 20);
    client.call(&["SET", "k", &value]).expect("a reply");
    // More than the sockets' buffers and the server's TLS hold together.
    let count = 24;
    let mut bytes = Vec::new();
    for _ in 0..count {
        put_command(&mut bytes, &["GET", "k"]);
    }
    client.send(&bytes).expect("sent");
    // The server goes on meanwhile.
    let mut other = secured.open();
    assert_eq!(other.call(&["PING"]).expect("a reply"), text_of("PONG"));
    for _ in 0..count {
        assert!(client.answer().expect("a reply") == text_of(&value));
    }
}

#[test]
fn messages_reach_a_client_that_says_nothing() {
    let secured = Secured::start(&[]);
    let mut listener = secured.open();
    listener.call(&["SUBSCRIBE", "news"]).expect("a reply");
    let mut waiter = secured.open();
    let mut bytes = Vec::new();
    put_command(&mut bytes, &["BLPOP", "queue", "0"]);
    waiter.send(&bytes).expect("sent");
    let mut speaker = secured.open();
    for number in 0..3 {
        let text = format!("message {number}");
        let heard = speaker.call(&["PUBLISH", "news", &text]).expect("a reply");
        assert_eq!(heard, text_of("1"));
        let message = ["message", "news", &text].map(text_of).to_vec();
        assert_eq!(listener.answer().expect("a message"), Answer::List(message));
    }
    speaker.call(&["RPUSH", "queue", "job"]).expect("a reply");
    let job = ["queue", "job"].map(text_of).to_vec();
    assert_eq!(waiter.answer().expect("a job"), Answer::List(job));
}

#[test]
fn who_cannot_prove_itself_is_refused() {
    let secured = Secured::start(&[]);
    let refused = |own: Option<&Files>| {
        // With TLS 1.3 a client is refused after its side of the handshake.
        let asked = secured.try_open(own).and_then(|mut client| client.call(&["PING"]));
        asked.expect_err("it is refused").to_string()
    };
    let error = refused(None);
    assert!(error.contains("CertificateRequired"), "{error}");
    let stranger = Authority::new(secured.dir.path(), "stranger");
    let forged = stranger.sign(secured.dir.path(), "forged");
    let error = refused(Some(&forged));
    assert!(error.contains("UnknownCA") || error.contains("DecryptError"), "{error}");
    secured.open().call(&["PING"]).expect("it still serves");

    // A client does not believe any server, either.
    let own = (secured.client.cert.as_path(), secured.client.key.as_path());
    let tls = ClientTls::from_files(&stranger.file, Some(own)).expect("files");
    let address = secured.server.address.to_string();
    let error = Client::open_with(&address, PATIENCE, Some(&tls)).err();
    assert!(matches!(error, Some(ClientError::Tls { .. })), "{error:?}");
}

#[test]
fn certificates_are_asked_for_as_the_settings_say() {
    let secured = Secured::start(&[("tls-auth-clients", "optional")]);
    let stranger = Authority::new(secured.dir.path(), "stranger");
    let forged = stranger.sign(secured.dir.path(), "forged");
    let asks = |own: Option<&Files>| {
        let asked = secured.try_open(own).and_then(|mut client| client.call(&["PING"]));
        asked.is_ok()
    };
    assert!(asks(None) && asks(Some(&secured.client)) && !asks(Some(&forged)));
    let mut client = secured.open();
    assert_eq!(set(&mut client, &["tls-auth-clients", "no"]), text_of("OK"));
    assert!(asks(None) && asks(Some(&forged)));
    assert_eq!(set(&mut client, &["tls-auth-clients", "yes"]), text_of("OK"));
    assert!(!asks(None) && asks(Some(&secured.client)));
}

#[test]
fn what_is_no_tls_is_closed_and_others_are_served() {
    let secured = Secured::start(&[]);
    let mut plain = TcpStream::connect(secured.server.address).expect("it accepts");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("sent");
    is_closed(&mut plain);
    // In the middle of a connection, too.
    let mut raw = secured.raw(&rustls::version::TLS13);
    raw.write_all(b"PING\r\n").expect("sent");
    raw.read_exact(&mut [0; 7]).expect("a reply");
    raw.sock.write_all(b"*1\r\n$4\r\nPING\r\n").expect("sent");
    is_closed(&mut raw.sock);
    secured.open().call(&["PING"]).expect("it still serves");
}

#[test]
fn a_handshake_that_stalls_is_closed() {
    let secured = Secured::start(&[]);
    let began = Instant::now();
    let silent = TcpStream::connect(secured.server.address).expect("it accepts");
    // The beginning of a hello, of which the rest never comes.
    let mut half = TcpStream::connect(secured.server.address).expect("it accepts");
    half.write_all(&[22, 3, 1, 1, 0, 1, 0]).expect("sent");
    let mut served = secured.open();
    for mut stream in [silent, half] {
        is_closed(&mut stream);
        assert!(began.elapsed() >= HANDSHAKE_MAX);
    }
    assert!(began.elapsed() < HANDSHAKE_MAX * 2);
    assert_eq!(served.call(&["PING"]).expect("a reply"), text_of("PONG"));
}

#[test]
fn the_end_of_a_connection_is_said() {
    let secured = Secured::start(&[]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut raw = secured.raw(version);
        raw.write_all(b"PING\r\nQUIT\r\n").expect("sent");
        let mut said = String::new();
        // An end without a farewell would be an error.
        raw.read_to_string(&mut said).expect("a farewell");
        assert_eq!(said, "+PONG\r\n+OK\r\n");
        // A client says it, too, and is answered first.
        let mut raw = secured.raw(version);
        raw.write_all(b"PING\r\n").expect("sent");
        raw.conn.send_close_notify();
        raw.flush().expect("sent");
        let mut said = String::new();
        raw.read_to_string(&mut said).expect("a farewell");
        assert_eq!(said, "+PONG\r\n");
        // One that merely ends is answered, too.
        let mut raw = secured.raw(version);
        raw.write_all(b"PING\r\nPING\r\n").expect("sent");
        raw.sock.shutdown(Shutdown::Write).expect("half closed");
        let mut said = String::new();
        raw.read_to_string(&mut said).expect("a farewell");
        assert_eq!(said, "+PONG\r\n+PONG\r\n");
    }
    // When the server stops, too.
    let mut raw = secured.raw(&rustls::version::TLS13);
    raw.write_all(b"PING\r\n").expect("sent");
    raw.read_exact(&mut [0; 7]).expect("a reply");
    secured.server.stop();
    assert_eq!(raw.read(&mut [0; 7]).expect("a farewell"), 0);
}

#[test]
fn new_certificates_are_for_new_connections() {
    let secured = Secured::start(&[]);
    let mut client = secured.open();
    let first = secured.certificate();
    // The same name, with something else in it.
    let renewed = secured.authority.sign(secured.dir.path(), "server");
    assert_eq!(secured.certificate(), first, "nobody has asked for it yet");
    let files = ["tls-cert-file", text(&renewed.cert), "tls-key-file", text(&renewed.key)];
    assert_eq!(set(&mut client, &files), text_of("OK"));
    let second = secured.certificate();
    assert_ne!(second, first);
    assert_eq!(client.call(&["PING"]).expect("a reply"), text_of("PONG"));

    // What cannot be used changes nothing, and is named.
    let other = secured.authority.sign(secured.dir.path(), "other");
    let garbage = secured.dir.path().join("garbage.crt");
    std::fs::write(&garbage, "no certificate").expect("written");
    for (pairs, wants) in [
        (["tls-cert-file", "/no/such.crt"], ["/no/such.crt", "cannot be read"]),
        (["tls-cert-file", text(&garbage)], ["garbage.crt", "no certificate"]),
        (["tls-key-file", text(&garbage)], ["garbage.crt", "no private key"]),
        (["tls-ca-cert-file", text(&garbage)], ["garbage.crt", "no certificate"]),
        // A key of another certificate.
        (["tls-key-file", text(&other.key)], ["other.key", "server.crt"]),
        (["tls-ca-cert-file", ""], ["tls-ca-cert-file", "name the CA"]),
        (["tls-protocols", "TLSv1.1"], ["TLSv1.1", "TLSv1.2"]),
        (["tls-key-file-pass", "x"], ["encrypted", "openssl pkey"]),
    ] {
        let Answer::Error(error) = set(&mut client, &pairs) else {
            panic!("{pairs:?} was taken");
        };
        for want in wants {
            assert!(error.contains(want), "{pairs:?}: {error}");
        }
        let kept = client.call(&["CONFIG", "GET", pairs[0]]).expect("a reply");
        assert_ne!(kept, Answer::List(pairs.map(text_of).to_vec()));
    }
    assert_eq!(secured.certificate(), second);

    // Another CA: who was known is not any more.
    let stranger = Authority::new(secured.dir.path(), "stranger");
    let own = stranger.sign(secured.dir.path(), "forged");
    let authority = ["tls-ca-cert-file", text(&stranger.file)];
    assert_eq!(set(&mut client, &authority), text_of("OK"));
    let ask = |own: &Files| {
        let asked = secured.try_open(Some(own)).and_then(|mut client| client.call(&["PING"]));
        asked.is_ok()
    };
    assert!(ask(&own) && !ask(&secured.client));
    // A whole directory of them.
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::copy(&secured.authority.file, dir.path().join("ca.crt")).expect("copied");
    let authorities = ["tls-ca-cert-dir", text(dir.path())];
    assert_eq!(set(&mut client, &authorities), text_of("OK"));
    assert!(ask(&own) && ask(&secured.client));
}

#[test]
fn versions_and_sessions_are_as_the_settings_say() {
    let secured = Secured::start(&[("tls-protocols", "TLSv1.2")]);
    let mut raw = secured.raw(&rustls::version::TLS12);
    raw.write_all(b"PING\r\n").expect("sent");
    raw.read_exact(&mut [0; 7]).expect("a reply");
    let mut raw = secured.raw(&rustls::version::TLS13);
    assert!(raw.write_all(b"PING\r\n").is_err());
    let mut client = secured.open();
    let both = ["tls-protocols", "TLSv1.2 TLSv1.3", "tls-session-caching", "no"];
    assert_eq!(set(&mut client, &both), text_of("OK"));
    let mut raw = secured.raw(&rustls::version::TLS13);
    raw.write_all(b"PING\r\n").expect("sent");
    raw.read_exact(&mut [0; 7]).expect("a reply");
    assert_eq!(raw.conn.tls13_tickets_received(), 0);
}

#[test]
fn clients_of_both_ports_are_served_alike() {
    let port = free_port().expect("a port").to_string();
    let secured = Secured::start(&[("port", &port), ("maxclients", "3")]);
    let plain_address = secured.server.address;
    assert_eq!(plain_address.port().to_string(), port, "the plain one is first");
    let mut plain = support::Client::connect(plain_address);
    assert_eq!(plain.line("SET k v"), "OK");
    let tls_port = plain.line("CONFIG GET tls-port");
    let tls_port = tls_port.trim_matches(|letter: char| !letter.is_ascii_digit());
    let address = format!("127.0.0.1:{tls_port}");
    let tls = secured.tls(Some(&secured.client));
    let mut client = Client::open_with(&address, PATIENCE, Some(&tls)).expect("a connection");
    assert_eq!(client.call(&["GET", "k"]).expect("a reply"), text_of("v"));
    let listed = plain.line("CLIENT LIST");
    assert!(listed.contains(&format!(" laddr={address} ")), "{listed}");
    // One too many.
    let _third = support::Client::connect(plain_address);
    plain.wait_for_info("connected_clients:3");
    let asked = Client::open_with(&address, PATIENCE, Some(&tls));
    assert!(asked.and_then(|mut client| client.call(&["PING"])).is_err());
    assert_eq!(client.call(&["GET", "k"]).expect("a reply"), text_of("v"));
    drop(secured.data);
}
