//! The embeddable library, as a user would use it.

use ordo::{Call, CallError, FsyncPolicy, Key, OpenError, Ordo, Outcome, Reply, Stop, Tx};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

async fn add(mut tx: Tx, call: Call) -> Outcome {
    let key = Key::from(&call[0]);
    let sum = match tx.get_for_update(&key).await? {
        Some(value) => ordo::integer(&value.as_string().ok_or(Stop::abort("not a number"))?)?,
        None => 0,
    } + ordo::integer(&call[1])?;
    tx.put(&key, sum.to_string().as_str()).await?;
    if sum < 0 {
        return Err(Stop::abort("negative"));
    }
    Ok(Reply::Integer(sum))
}

async fn sum(mut tx: Tx, call: Call) -> Outcome {
    let mut sum = 0;
    for key in call.iter() {
        sum += match tx.get(&Key::from(key)).await? {
            Some(value) => ordo::integer(&value.as_string().ok_or(Stop::abort("not a number"))?)?,
            None => 0,
        };
    }
    Ok(Reply::Integer(sum))
}

fn open(path: &std::path::Path) -> Ordo {
    let options = Ordo::options().register("add", add).unwrap().register_read_only("sum", sum).unwrap();
    options.workers(1).fsync(FsyncPolicy::No).open(path).unwrap()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn calls_commands_and_futures_share_the_records_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let ordo = open(dir.path());
    assert_eq!(ordo.call("add", ["a", "2"]), Ok(Reply::Integer(2)));
    assert_eq!(ordo.command(["INCRBY", "a", "3"]), Ok(Reply::Integer(5)));
    assert_eq!(block_on(ordo.call_async("add", ["a", "4"])), Ok(Reply::Integer(9)));
    assert_eq!(ordo.call("sum", ["a", "missing"]), Ok(Reply::Integer(9)));
    let script = "redis.call('INCR', KEYS[1]) return redis.call('GET', KEYS[1])";
    assert_eq!(ordo.command(["EVAL", script, "1", "a"]), Ok(Reply::bulk("10")));
    assert_eq!(ordo.call("sum", ["a"]), Ok(Reply::Integer(10)));
    let before = ordo.status().node.epochs;
    assert_eq!(ordo.call("sum", ["a"]), Ok(Reply::Integer(10)));
    assert_eq!(ordo.status().node.epochs, before, "reads are not logged");
    drop(ordo);

    let ordo = open(dir.path());
    assert_eq!(ordo.recovery().checkpoint, txn::Epoch(0));
    assert!(ordo.recovery().entries >= 4);
    assert_eq!(ordo.command(["GET", "a"]), Ok(Reply::bulk("10")));
    ordo.checkpoint().unwrap();
    drop(ordo);
    assert_eq!(open(dir.path()).recovery().records, 1);
}

#[test]
fn every_way_to_fail_has_its_own_error() {
    let dir = tempfile::tempdir().unwrap();
    let ordo = open(dir.path());
    let check = |result: Result<Reply, CallError>, expected: CallError| assert_eq!(result, Err(expected));
    check(ordo.call("sub", ["a", "1"]), CallError::UnknownProcedure("sub".to_owned()));
    check(block_on(ordo.call_async("sub", ["a"])), CallError::UnknownProcedure("sub".to_owned()));
    check(ordo.call("add", ["a", "-1"]), CallError::Aborted("negative".to_owned()));
    assert_eq!(ordo.command(["EXISTS", "a"]), Ok(Reply::Integer(0)), "an abort leaves nothing behind");
    ordo.command(["HSET", "hash", "f", "v"]).unwrap();
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    check(ordo.command(["GET", "hash"]), CallError::Error(wrong_type.to_owned()));
    assert!(matches!(ordo.command(["NOSUCH"]), Err(CallError::Error(_))));
    assert!(matches!(ordo.command(["GET"]), Err(CallError::Error(_))));
    assert!(matches!(ordo.command([""; 0]), Err(CallError::Error(_))));
    assert!(matches!(
        ordo.command(["SUBSCRIBE", "c"]),
        Err(CallError::Error(_) | CallError::NeedsConnection(_))
    ));
    assert!(matches!(ordo.command(["MULTI"]), Err(CallError::NeedsConnection(_))));
    // Missing arguments make the procedure panic; the caller learns of it, and the store goes on.
    assert!(matches!(ordo.call("add", ["a"]), Err(CallError::Aborted(_))));
    assert_eq!(ordo.call("add", ["a", "1"]), Ok(Reply::Integer(1)));

    assert!(matches!(Ordo::open(dir.path()), Err(OpenError::Start(_))), "the directory is in use");
    assert!(ordo.register("add", add).is_err(), "the name is taken");
    assert!(Ordo::options().register("redis.get", add).unwrap().open(dir.path()).is_err());
}

#[test]
fn a_log_with_an_unknown_procedure_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let ordo = Ordo::open(dir.path()).unwrap();
    assert_eq!(ordo.status().fsync, FsyncPolicy::Always, "as the server, unless told otherwise");
    ordo.register("add", add).unwrap();
    ordo.call("add", ["a", "1"]).unwrap();
    drop(ordo);
    let error = Ordo::open(dir.path()).err().unwrap();
    assert!(error.to_string().contains("is not registered"), "{error}");
    assert_eq!(open(dir.path()).call("sum", ["a"]), Ok(Reply::Integer(1)));
}

#[test]
fn many_threads_and_futures_lose_nothing() {
    const THREADS: usize = 40;
    const CALLS: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let ordo =
        Ordo::options().register("add", add).unwrap().fsync(FsyncPolicy::Always).open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for call in 0..CALLS {
                    if call % 2 == 0 {
                        ordo.call("add", ["a", "1"]).unwrap();
                    } else {
                        block_on(ordo.call_async("add", ["a", "1"])).unwrap();
                    }
                }
            });
        }
    });
    let calls = (THREADS * CALLS).to_string();
    assert_eq!(ordo.command(["GET", "a"]), Ok(Reply::bulk(calls.as_str())));
    // Dropped futures: their calls go on.
    for _ in 0..10 {
        drop(ordo.call_async("add", ["a", "1"]));
    }
    drop(ordo);
    let ordo = open(dir.path());
    assert_eq!(ordo.call("sum", ["a"]), Ok(Reply::Integer((THREADS * CALLS + 10) as i64)));
}
