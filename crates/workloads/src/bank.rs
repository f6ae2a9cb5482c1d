//! Bank: accounts in branches, transfers within a branch, and audits that sum a branch.
//!
//! A transfer reads and updates two accounts and rolls back if the first holds too little. (As fragments, it
//! has one for each account, the first of which may abort.) An audit is
//! read-only, reads every account of one branch and knows what the sum must be: money only moves within the
//! branch. So every audit that takes effect is a test of the snapshot that it read, and the totals at the end
//! are a test of the transfers.
//!
//! Archie's contention levels (§6.1) are 500, 2,000 and 5,000 accounts, with 10 % or 50 % audits.

use crate::dice::Dice;
use crate::{
    Client, Draw, Generator, MISSING, Native, PerRecord, State, Tally, WRONG, Workload, bytes_at, malformed,
    missing_value, row,
};
use std::sync::Arc;
use txn::fragments::{Done, FragmentOutcome, FragmentValues};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentCode, FragmentContext, FragmentKind, FragmentValue,
    Fragments, Key, Outcome, PartitionRoute, Procedure, Reply, Request, Stop, Tx,
};

/// The balance with which every account starts.
pub const BALANCE_INITIAL: i64 = 1_000;
const AMOUNT_MAX: u32 = 500;
const INSUFFICIENT: &str = "insufficient funds";

/// The workload's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// How many accounts there are.
    pub accounts: u32,
    /// How many accounts a branch has (the last may have fewer): the length of an audit.
    pub branch_accounts: u32,
    /// How many calls in 100 are audits.
    pub audit_percent: u32,
}

impl Default for Bank {
    fn default() -> Bank {
        Bank { accounts: 5_000, branch_accounts: 50, audit_percent: 10 }
    }
}

fn account(number: u32) -> Key {
    let mut name = *b"acct\0\0\0\0";
    name[4..].copy_from_slice(&number.to_be_bytes());
    Key::new(&name)
}

fn balance_of(entry: Option<Entry>) -> Result<i64, Stop> {
    Ok(i64::from_le_bytes(bytes_at(&row(entry.map(|entry| entry.value))?, 0)?))
}

fn balance_row(balance: i64) -> Blob {
    Blob::new(&balance.to_le_bytes())
}

/// The arguments of both procedures: two account numbers and an amount (for an audit: first, end, expected
/// sum).
#[derive(Clone, Copy)]
struct Arguments {
    first: u32,
    second: u32,
    amount: i64,
}

impl Arguments {
    fn encode(self) -> Args {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.first.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.second.to_le_bytes());
        bytes[8..].copy_from_slice(&self.amount.to_le_bytes());
        Args::one(&bytes)
    }
    fn decode(args: &[Blob]) -> Result<Arguments, Stop> {
        let bytes: &[u8; 16] =
            args.first().and_then(|blob| blob.as_bytes().try_into().ok()).ok_or_else(malformed)?;
        Ok(Arguments {
            first: u32::from_le_bytes(bytes_at(bytes, 0)?),
            second: u32::from_le_bytes(bytes_at(bytes, 4)?),
            amount: i64::from_le_bytes(bytes_at(bytes, 8)?),
        })
    }
}

/// A transfer at one of its accounts.
fn transfer_at(args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    let Arguments { amount, .. } = Arguments::decode(args)?;
    let balance = balance_of(context.found.cloned());
    if context.place == 1 {
        let Ok(target) = balance else { return Ok(missing_value()) };
        return Ok(Done::put(Entry::new(balance_row(target + amount)), FragmentValue::NIL));
    }
    let source = balance?;
    if source < amount {
        return Err(Stop::abort(INSUFFICIENT));
    }
    Ok(Done::put(Entry::new(balance_row(source - amount)), Reply::Integer(source - amount)))
}

fn transfer_reply(_: &[Blob], mut values: FragmentValues) -> Reply {
    match values.iter().position(FragmentValue::is_error) {
        Some(wrong) => values.swap_remove(wrong).into_reply(),
        None => values.swap_remove(0).into_reply(),
    }
}

fn transfer_fragments(request: &Request) -> Option<Fragments> {
    let Arguments { first, second, .. } = Arguments::decode(&request.args).ok()?;
    let at = |number: u32| Fragment::independent(account(number), FragmentKind::Update);
    let list = [at(first).aborting(), at(second)].into_iter().collect();
    Fragments::new(list, FragmentCode { execute: transfer_at, reply: Some(transfer_reply) })
}

async fn transfer(mut tx: Tx, call: Call) -> Outcome {
    let Arguments { first, second, amount } = Arguments::decode(&call)?;
    let (from, to) = (account(first), account(second));
    let source = balance_of(tx.entry_for_update(&from).await?)?;
    if source < amount {
        return Err(Stop::abort(INSUFFICIENT));
    }
    let target = balance_of(tx.entry_for_update(&to).await?)?;
    tx.put(&from, balance_row(source - amount)).await?;
    tx.put(&to, balance_row(target + amount)).await?;
    Ok(Reply::Integer(source - amount))
}

fn audited(args: &[Blob]) -> Result<Vec<Key>, Stop> {
    let Arguments { first, second, .. } = Arguments::decode(args)?;
    Ok((first..second).map(account).collect())
}

/// An audit at one account.
fn audit(_: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    Ok(Done::read(balance_of(context.found.cloned()).map_or_else(|_| Reply::error(MISSING), Reply::Integer)))
}

fn audit_reply(args: &[Blob], values: FragmentValues) -> Reply {
    let Ok(Arguments { first, second, amount }) = Arguments::decode(args) else {
        return Reply::error(MISSING);
    };
    let mut sum = 0;
    for value in values {
        match value.into_reply() {
            Reply::Integer(balance) => sum += balance,
            error => return error,
        }
    }
    match sum == amount {
        true => Reply::Integer(sum),
        false => {
            Reply::error_owned(format!("{WRONG}the accounts {first}..{second} sum to {sum}, not {amount}"))
        }
    }
}

const TRANSFER: Native = Native {
    name: "bank.transfer",
    footprint: |args| match Arguments::decode(args) {
        Ok(Arguments { first, second, .. }) => {
            Footprint::of_keys(vec![], vec![account(first), account(second)])
        }
        Err(_) => Footprint::unknown(),
    },
    fragments: transfer_fragments,
    run: |tx, call| Box::pin(transfer(tx, call)),
};

const AUDIT: PerRecord = PerRecord {
    name: "bank.audit",
    kind: FragmentKind::Read,
    keys: audited,
    code: FragmentCode { execute: audit, reply: Some(audit_reply) },
};

impl Bank {
    fn branches(&self) -> u32 {
        self.accounts.div_ceil(self.branch_accounts)
    }
    /// The first account of a branch, and the end of its accounts.
    fn branch(&self, number: u32) -> (u32, u32) {
        let first = number * self.branch_accounts;
        (first, (first + self.branch_accounts).min(self.accounts))
    }
}

struct BankGenerator {
    bank: Bank,
    dice: Dice,
    transfer: Arc<dyn Procedure>,
    audit: Arc<dyn Procedure>,
}

impl Generator for BankGenerator {
    fn next(&mut self) -> Draw {
        let (first, end) = self.bank.branch(self.dice.below(u64::from(self.bank.branches())) as u32);
        let size = end - first;
        if size < 2 || self.dice.percent(self.bank.audit_percent) {
            let args = Arguments { first, second: end, amount: i64::from(size) * BALANCE_INITIAL }.encode();
            return Draw {
                procedure: self.audit.clone(),
                args,
                read_only: true,
                route: PartitionRoute::default(),
            };
        }
        let mut pair = [0; 2];
        self.dice.distinct(u64::from(size), &mut pair);
        let amount = i64::from(self.dice.between(1, AMOUNT_MAX));
        let args = Arguments { first: first + pair[0], second: first + pair[1], amount }.encode();
        Draw { procedure: self.transfer.clone(), args, read_only: false, route: PartitionRoute::default() }
    }
}

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }
    fn procedures(&self) -> Vec<Arc<dyn Procedure>> {
        vec![TRANSFER.shared(), AUDIT.shared()]
    }
    fn load(&self, _seed: u64, _part: usize, sink: &mut dyn FnMut(Key, Entry)) {
        for number in 0..self.accounts {
            sink(account(number), Entry::new(balance_row(BALANCE_INITIAL)));
        }
    }
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator> {
        Box::new(BankGenerator {
            bank: *self,
            dice: Dice::new(seed, client.index as u64),
            transfer: TRANSFER.shared(),
            audit: AUDIT.shared(),
        })
    }
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String> {
        tally.no_wrong_replies()?;
        for branch in 0..self.branches() {
            let (first, end) = self.branch(branch);
            let mut sum = 0;
            for number in first..end {
                let balance = balance_of(state.get(&account(number)))
                    .map_err(|_| format!("account {number} is absent"))?;
                if balance < 0 {
                    return Err(format!("account {number} is overdrawn: {balance}"));
                }
                sum += balance;
            }
            let expected = i64::from(end - first) * BALANCE_INITIAL;
            if sum != expected {
                return Err(format!(
                    "branch {branch} holds {sum} in total, not the {expected} that it started with"
                ));
            }
        }
        let count = state.count();
        if count != u64::from(self.accounts) {
            return Err(format!("there are {count} records, not one for each of {} accounts", self.accounts));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Serial, assert_seeded, seed};

    const SMALL: Bank = Bank { accounts: 130, branch_accounts: 50, audit_percent: 20 };

    #[test]
    fn transfers_keep_every_total_and_some_roll_back() {
        let seed = seed(1);
        let mut state = Serial::loaded(&SMALL, seed);
        let tally = state.drive(&SMALL, seed, 3, 2_000);
        SMALL.check(&mut state, &tally).unwrap();
        assert!(tally.aborted_by_logic > 0, "some accounts run dry");
        assert!(tally.committed > 4_000);
        assert_eq!(state.in_fragments, 6_000);
    }

    #[test]
    fn a_lost_update_fails_the_check() {
        let mut state = Serial::loaded(&SMALL, 1);
        let mut tally = state.drive(&SMALL, 1, 1, 500);
        let before = state.records[&account(7)].clone();
        let balance = balance_of(Some(before)).unwrap();
        state.records.insert(account(7), Entry::new(balance_row(balance + 1)));
        assert!(SMALL.check(&mut state, &tally).unwrap_err().contains("branch 0"));
        // An audit of that branch sees it too.
        tally.merge(&state.drive(&SMALL, 2, 1, 500));
        assert!(tally.wrong_replies > 0);
    }

    #[test]
    fn calls_are_a_function_of_the_seed() {
        assert_seeded(&SMALL);
    }
}
