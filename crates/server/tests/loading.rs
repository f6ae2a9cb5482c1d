//! What compiles a script is no work for a thread that serves connections.

use crate::support::{TestServer, show};
use execute::Witness;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use txn::{Request, RequestName, SessionId};

/// Stops the thread that executes a client's request, before it does, until the test lets it go on.
struct Gate {
    entered: Mutex<Sender<()>>,
    may_leave: Mutex<Receiver<()>>,
}

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

impl Witness for Gate {
    fn see(&self, name: RequestName, _: &Request, part: &mut dyn FnMut()) {
        if name.session != SessionId::INTERNAL && IS_CLOSED.swap(false, Ordering::SeqCst) {
            let entered = self.entered.lock().expect("no panic");
            entered.send(()).expect("the test waits");
            let may_leave = self.may_leave.lock().expect("no panic");
            may_leave.recv().expect("the test goes on");
        }
        part();
    }
}

#[test]
fn others_are_served_while_a_script_or_a_library_is_loaded() {
    let (entered, is_entered) = channel();
    let (leave, may_leave) = channel();
    let gate = Gate { entered: Mutex::new(entered), may_leave: Mutex::new(may_leave) };
    assert!(execute::watch(Box::new(gate)));
    let (server, _dir) = TestServer::start(&[("io-threads", "1"), ("workers", "1")]);
    let (mut loader, mut other) = (server.client(), server.client());
    assert_eq!(other.line("SET k v"), "OK");
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    let digest = "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"";
    let in_block = format!("[{digest}]");
    let cases: [(&[&str], &str); 5] = [
        (&["SCRIPT", "LOAD", "return 1"], digest),
        (&["FUNCTION", "LOAD", library], "\"lib\""),
        (&["EVAL", "return 2", "0"], "2"),
        (&["ORDO.IDEMPOTENT", "id", "SCRIPT", "LOAD", "return 1"], digest),
        (&["EXEC"], &in_block),
    ];
    for (words, reply) in cases {
        if words == ["EXEC"] {
            loader.talk(&[("MULTI", "OK")]);
            assert_eq!(show(&loader.call(&["SCRIPT", "LOAD", "return 1"])), "QUEUED");
        }
        IS_CLOSED.store(true, Ordering::SeqCst);
        loader.send(words);
        is_entered.recv().expect("it is executed");
        // The only thread that serves connections still does.
        other.talk(&[("PING", "PONG"), ("GET k", "\"v\"")]);
        leave.send(()).expect("the thread waits");
        assert_eq!(show(&loader.read()), reply, "{words:?}");
    }
    execute::watch_no_more();
    server.stop();
}
