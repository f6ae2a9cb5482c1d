//! A bank in a directory: `cargo run -p ordo --example transfer [directory]`.
//!
//! Eight threads move money between ten accounts, in transactions of our own; an audit that runs meanwhile
//! always finds the same total. Run it again with the same directory: the balances are still there.

use ordo::{Call, FsyncPolicy, Key, Ordo, Outcome, Reply, Stop, Tx};
use std::error::Error;

const ACCOUNTS: u64 = 10;
const OPENING_BALANCE: i64 = 1_000;
const THREADS: u64 = 8;
const TRANSFERS: u64 = 2_000;

/// The balance of an account. A missing one has never been opened.
async fn balance(tx: &mut Tx, account: &Key) -> Result<i64, Stop> {
    match tx.get_for_update(account).await? {
        Some(value) => ordo::integer(&value.as_string().ok_or(Stop::abort("the key is not an account"))?),
        None => Err(Stop::abort("there is no such account")),
    }
}

/// `transfer from to amount`. Nothing happens unless there is enough.
async fn transfer(mut tx: Tx, call: Call) -> Outcome {
    let [from, to] = [Key::from(&call[0]), Key::from(&call[1])];
    let amount = ordo::integer(&call[2])?;
    let source = balance(&mut tx, &from).await?;
    if from == to || source < amount {
        return Err(Stop::abort("insufficient funds"));
    }
    let target = balance(&mut tx, &to).await?;
    tx.put(&from, (source - amount).to_string().as_str()).await?;
    tx.put(&to, (target + amount).to_string().as_str()).await?;
    Ok(Reply::OK)
}

/// `audit`: the sum of all balances, at one moment.
async fn audit(mut tx: Tx, _: Call) -> Outcome {
    let mut sum = 0;
    for number in 0..ACCOUNTS {
        sum += balance(&mut tx, &account(number)).await?;
    }
    Ok(Reply::Integer(sum))
}

fn account(number: u64) -> Key {
    Key::from(format!("account:{number}").as_str())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "bank".to_owned());
    let ordo = Ordo::options()
        .register("bank.transfer", transfer)?
        .register_read_only("bank.audit", audit)?
        .fsync(FsyncPolicy::Everysec)
        .open(&directory)?;
    println!("{directory}: {}", ordo.recovery());
    for number in 0..ACCOUNTS {
        // Redis's commands work on the same records.
        ordo.command(["SETNX".to_owned(), format!("account:{number}"), OPENING_BALANCE.to_string()])?;
    }

    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let ordo = &ordo;
            scope.spawn(move || {
                let mut refused = 0;
                for i in 0..TRANSFERS {
                    let from = format!("account:{}", (thread + i * 7) % ACCOUNTS);
                    let to = format!("account:{}", (thread + i * 3 + 1) % ACCOUNTS);
                    let result = ordo.call("bank.transfer", [from, to, (i % 200).to_string()]);
                    refused += u64::from(result.is_err());
                }
                println!("thread {thread}: {} transfers, {refused} refused", TRANSFERS - refused);
            });
        }
        for _ in 0..5 {
            println!("audit: {:?}", ordo.call("bank.audit", [""; 0]));
        }
    });
    assert_eq!(ordo.call("bank.audit", [""; 0])?, Reply::Integer(ACCOUNTS as i64 * OPENING_BALANCE));
    println!("not a coin was lost; run this again to see that they are still there");
    Ok(())
}
