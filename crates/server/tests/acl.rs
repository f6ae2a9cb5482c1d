//! Users over sockets, restarts and files. What users may do, and Redis's own tests of that, is in
//! `src/session/tests/transcripts/users.txt`.
//!
//! Redis's tests of DEBUG, MIGRATE and MEMORY DOCTOR are nowhere: these commands are not, yet. What rules say
//! of them is in the unit tests of `redis_surface::acl`.

use crate::support;
use crate::support::{Client, TestServer, show};
use redis_surface::acl::PasswordHash;
use txn::Reply;

/// What ACL GETUSER says under a name.
fn of_user(client: &mut Client, user: &str, field: &str) -> String {
    field_of(&client.call(&["ACL", "GETUSER", user]), field)
}

fn field_of(reply: &Reply, field: &str) -> String {
    let parts = match reply {
        Reply::Array(parts) => parts,
        other => panic!("{other:?}"),
    };
    let place = parts.iter().position(|part| show(part) == format!("\"{field}\""));
    show(&parts[place.expect("the field is there") + 1])
}

fn refused(client: &mut Client, line: &str, part: &str) {
    let reply = client.line(line);
    assert!(reply.starts_with('-') && reply.contains(part), "{line}: {reply}");
}

const WRONG_PASSWORD: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

fn no_command(name: &str) -> String {
    format!("-NOPERM this user has no permissions to run the '{name}' command")
}

/// Whether a server asks strangers for the password, which is the one that opens it.
fn asks_for(server: &TestServer, password: &str) {
    // What is kept of it is a hash.
    let hash = PasswordHash::of(password.as_bytes()).behind(b'#');
    let hash = String::from_utf8_lossy(&hash);
    server.client().talk(&[
        ("PING", "-NOAUTH Authentication required."),
        ("AUTH other", WRONG_PASSWORD),
        (&format!("AUTH {password}"), "OK"),
        ("ACL WHOAMI", "\"default\""),
        ("CONFIG GET requirepass", &format!("[\"requirepass\" \"{hash}\"]")),
    ]);
}

#[test]
fn requirepass_closes_what_was_kept_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = TestServer::start_in(dir.path(), &[]);
    // Any change of `default` keeps that it takes any password.
    server.client().talk(&[("ACL SETUSER default -flushall", "OK"), ("PING", "PONG")]);
    server.stop();
    let settings = [("requirepass", "secret")];
    let server = TestServer::start_in(dir.path(), &settings);
    asks_for(&server, "secret");
    let mut r = server.client();
    r.talk(&[
        ("AUTH secret", "OK"),
        ("FLUSHALL", &no_command("flushall")),
        // Who says so to the server that runs means it, until the next start.
        ("ACL SETUSER default nopass", "OK"),
    ]);
    server.client().talk(&[("PING", "PONG")]);
    r.talk(&[("CONFIG SET requirepass again", "OK")]);
    asks_for(&server, "again");
    r.talk(&[("ACL SETUSER default nopass", "OK")]);
    server.stop();
    asks_for(&TestServer::start_in(dir.path(), &settings), "secret");
}

#[test]
fn requirepass_closes_what_files_and_settings_leave_open() {
    for text in ["user alice on >alice ~* +@all\n", "user default on nopass ~* &* +@all\n"] {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("user.acl"), text).expect("a file");
        let settings = [("aclfile", "user.acl"), ("requirepass", "secret")];
        let server = TestServer::start_in(dir.path(), &settings);
        asks_for(&server, "secret");
        let mut r = server.client();
        r.talk(&[("AUTH secret", "OK"), ("ACL LOAD", "OK")]);
        asks_for(&server, "secret");
    }
    let user = ("user", "default on nopass ~* &* +@all");
    let (server, _dir) = TestServer::start(&[user, ("requirepass", "secret")]);
    asks_for(&server, "secret");
    // A password of its own is the file's matter.
    let dir = tempfile::tempdir().expect("a directory");
    let text = "user default on >own ~* &* +@all\n";
    std::fs::write(dir.path().join("user.acl"), text).expect("a file");
    let settings = [("aclfile", "user.acl"), ("requirepass", "secret")];
    let server = TestServer::start_in(dir.path(), &settings);
    server.client().talk(&[("AUTH secret", WRONG_PASSWORD), ("AUTH own", "OK")]);
}

#[test]
fn users_are_part_of_the_data_and_settings_make_the_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings =
        [("user", "alice on >alice ~* +@all -flushdb"), ("user", "default on nopass ~* +@all -flushdb")];
    let server = TestServer::start_in(dir.path(), &settings);
    let mut r = server.client();
    r.talk(&[
        ("FLUSHDB", &no_command("flushdb")),
        ("AUTH alice alice", "OK"),
        ("FLUSHDB", &no_command("flushdb")),
        ("ACL SETUSER bob on >bob +ping", "OK"),
        ("ACL SETUSER alice -flushall", "OK"),
        ("SAVE", "OK"),
        ("ACL SETUSER carol on >carol +ping", "OK"),
    ]);
    server.stop();
    // ACL from config file and config rewrite: what is there stays.
    let server = TestServer::start_in(dir.path(), &settings);
    server.client().talk(&[
        ("FLUSHDB", &no_command("flushdb")),
        ("AUTH bob bob", "OK"),
        ("AUTH carol carol", "OK"),
        ("AUTH alice alice", "OK"),
        ("FLUSHALL", &no_command("flushall")),
    ]);
}

#[test]
fn the_acl_file_is_loaded_and_saved() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("user.acl");
    let text = "user alice on allcommands allkeys &* >alice\nuser bob on -@all +@set +acl ~set* &* >bob\n\
                user default on nopass ~* &* +@all\n";
    std::fs::write(&path, text).expect("a file");
    let settings = [("aclfile", "user.acl")];
    let server = TestServer::start_in(dir.path(), &settings);
    let mut r = server.client();
    r.talk(&[
        // Alice: can execute all command.
        ("AUTH alice alice", "OK"),
        ("SET key value", "OK"),
        // Bob: just execute @set and acl command.
        ("AUTH bob bob", "OK"),
        ("SADD set 1 2 3", "3"),
        ("SET key value", &no_command("set")),
        // ACL load and save.
        ("ACL SETUSER eve +get allkeys >eve on", "OK"),
        ("ACL SAVE", "OK"),
        ("ACL LOAD", "OK"),
    ]);
    assert_eq!(r.try_read(), None, "ACL load will free user and kill clients");
    let mut r = server.client();
    r.talk(&[
        ("AUTH eve eve", "OK"),
        ("GET key", "\"value\""),
        ("SET key value", &no_command("set")),
        ("AUTH alice alice", "OK"),
    ]);
    // Test loading an ACL file with duplicate users: nothing changes.
    std::fs::write(&path, format!("{text}\nuser alice on nopass ~* -@all")).expect("a file");
    refused(&mut r, "ACL LOAD", "Duplicate user 'alice' found");
    assert_eq!(of_user(&mut r, "alice", "commands"), "\"+@all\"");
    std::fs::write(&path, "user other on nopass +@all\n").expect("a file");
    server.stop();
    // Who starts with a file has its users, whatever they were.
    let server = TestServer::start_in(dir.path(), &settings);
    server.client().talk(&[("AUTH other x", "OK"), ("ACL USERS", "[\"default\" \"other\"]")]);
    server.stop();
    std::fs::write(&path, "nonsense\n").expect("a file");
    let refused = ordo_server::server::Server::start(support::config(dir.path(), &settings));
    let error = refused.err().expect("a broken file").to_string();
    assert!(error.contains("should start with user keyword"), "{error}");
}

#[test]
fn generated_passwords_differ_and_have_the_length_asked_for() {
    let (server, _dir) = TestServer::start(&[]);
    let mut r = server.client();
    let passwords = [r.line("ACL GENPASS"), r.line("ACL GENPASS")];
    assert!(passwords[0] != passwords[1] && passwords[0].len() == 64 + 2);
    assert_eq!(r.line("ACL GENPASS 5").len(), 2 + 2);
}

#[test]
fn a_restricted_users_scripts_are_refused_memory_like_others() {
    let (server, _dir) = TestServer::start(&[]);
    let mut admin = server.client();
    let library = "#!lua name=l
        redis.register_function('w', function(keys) return redis.call('set', keys[1], '1') end)
        redis.register_function{function_name='aw', flags={'allow-oom'}, callback=function(keys)
            return redis.call('set', keys[1], '1') end}";
    assert_eq!(show(&admin.call(&["FUNCTION", "LOAD", library])), "\"l\"");
    admin.talk(&[("ACL SETUSER alice on nopass ~app:* +@all", "OK"), ("CONFIG SET maxmemory 1mb", "OK")]);
    let is_short = (0..100_000).any(|_| admin.line("SET x y").starts_with("-OOM "));
    assert!(is_short);
    let mut r = server.client();
    r.talk(&[("AUTH alice x", "OK")]);
    let writes = |key: &str| format!("return redis.call('set', '{key}', '1')");
    let refused = |reply: String, part: &str| {
        assert!(reply.starts_with('-') && reply.contains(part), "{reply}");
    };
    let (no_memory, no_right) = ("OOM command not allowed", "can't access at least one");
    refused(show(&r.call(&["EVAL", &writes("app:k"), "0"])), no_memory);
    // What is not allowed is said first, as in Redis.
    refused(show(&r.call(&["EVAL", &writes("other"), "0"])), no_right);
    // A write that is not allowed is none: the script still has written nothing.
    let denied_first = format!("redis.pcall('del', 'other') {}", writes("app:k"));
    refused(show(&r.call(&["EVAL", &denied_first, "0"])), no_memory);
    let written_first = format!("redis.call('del', 'app:k') {}", writes("app:k"));
    assert_eq!(show(&r.call(&["EVAL", &written_first, "0"])), "OK");
    refused(r.line("FCALL w 1 app:k"), no_memory);
    r.talk(&[("FCALL aw 1 app:k", "OK")]);
    refused(r.line("FCALL aw 1 other"), "NOPERM");
    refused(r.line("ORDO.IDEMPOTENT id FCALL w 1 app:k"), no_memory);
}
