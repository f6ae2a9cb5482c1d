//! Scripts that take long: what they hold up, and what stops them.

mod support;

use redis_surface::script::{Limits, set_limits};
use support::{Client, TestServer, show};

/// Asks for the end of a script until one runs.
fn kill(other: &mut Client) -> String {
    loop {
        let answer = other.line("SCRIPT KILL");
        if !answer.starts_with("-NOTBUSY") {
            return answer;
        }
    }
}

#[test]
fn long_scripts_are_killed_unless_they_are_ordered() {
    let (server, _dir) = TestServer::start(&[("workers", "2")]);
    // An endless script ends by nothing else here.
    let endless = Limits { steps_max: u64::MAX, ..Limits::DEFAULT };
    assert!(set_limits(endless));
    let (mut scripts, mut other) = (server.client(), server.client());
    assert_eq!(other.line("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    assert_eq!(other.line("SET k 1"), "OK");

    let endless = "while true do pcall(redis.call, 'GET', 'k') end";
    for command in ["EVAL_RO", "EVALSHA_RO"] {
        let sha = other.call(&["SCRIPT", "LOAD", endless]);
        let sha = show(&sha).replace('"', "");
        let script = if command == "EVAL_RO" { endless } else { &sha };
        scripts.send(&[command, script, "0"]);
        // Neither writers nor readers wait for it.
        for _ in 0..100 {
            assert_eq!(other.line("SET k 1"), "OK");
            assert_eq!(other.line("GET k"), "\"1\"");
        }
        scripts.send(&["PING"]);
        assert_eq!(kill(&mut other), "OK");
        let killed = show(&scripts.read());
        assert_eq!(killed, "-ERR Script killed by user with SCRIPT KILL.");
        assert_eq!(show(&scripts.read()), "PONG");
    }

    // However many there are, others have their turn.
    let mut crowd: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut crowd {
        client.send(&["EVAL_RO", endless, "0"]);
    }
    for _ in 0..3 {
        let nothing = "for i = 1, 100000 do end return redis.call('GET', 'k')";
        let reply = show(&other.call(&["EVAL_RO", nothing, "0"]));
        assert_eq!(reply, "\"1\"");
    }
    // One that has just begun is killed the next time.
    assert_eq!(kill(&mut other), "OK");
    for client in &mut crowd {
        let reader = client.stream.try_clone().expect("a second handle");
        let waits = |wait: bool| reader.set_nonblocking(!wait).expect("a mode");
        let mut byte = [0];
        loop {
            waits(false);
            let is_there = reader.peek(&mut byte).is_ok();
            waits(true);
            if is_there {
                break;
            }
            other.line("SCRIPT KILL");
        }
        let killed = show(&client.read());
        assert_eq!(killed, "-ERR Script killed by user with SCRIPT KILL.");
    }

    // A read in a block is killed with its block.
    scripts.talk(&[("MULTI", "OK"), ("GET k", "QUEUED")]);
    assert_eq!(show(&scripts.call(&["EVAL_RO", endless, "0"])), "QUEUED");
    scripts.send(&["EXEC"]);
    assert_eq!(kill(&mut other), "OK");
    let killed = show(&scripts.read());
    assert_eq!(killed, "-ERR Script killed by user with SCRIPT KILL.");

    // What was ordered ends by itself.
    let long = "for i = 1, 100000000 do end redis.call('SET', 'k', '2') return 'done'";
    scripts.send(&["EVAL", long, "0"]);
    let answer = kill(&mut other);
    assert!(answer.starts_with("-UNKILLABLE "), "{answer}");
    assert_eq!(show(&scripts.read()), "\"done\"");
    assert_eq!(other.line("GET k"), "\"2\"");

    // A connection's long read sees nothing that was sent behind it.
    let slow_read = "for i = 1, 10000000 do end return redis.call('GET', 'k')";
    for round in 3..6 {
        scripts.send(&["EVAL_RO", slow_read, "0"]);
        scripts.send(&["SET", "k", &round.to_string()]);
        assert_eq!(show(&scripts.read()), format!("\"{}\"", round - 1));
        assert_eq!(show(&scripts.read()), "OK");
    }
    server.stop();
}
