//! Sites driven by scripts: a line is a command, and the line behind it, after `>`, what came of it.

use super::*;
use crate::access::Workspace;
use std::task::Poll;
use txn::{Access, Entry, Intent, SessionId};

/// One site whose group decides what the script says.
#[derive(Default)]
struct Rig {
    site: Dur,
    effects: Effects,
    transactions: BTreeMap<RequestId, Option<Box<Workspace>>>,
    entries: BTreeMap<RequestId, Vec<u8>>,
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes())
}

fn now<T>(poll: Poll<Result<T, txn::Stop>>) -> T {
    let Poll::Ready(Ok(value)) = poll else { panic!("a snapshot of this site answers at once") };
    value
}

fn text(entry: Option<&Entry>) -> String {
    let bytes = entry.and_then(|entry| entry.value.as_string());
    bytes.map_or("-".to_owned(), |bytes| String::from_utf8_lossy(bytes.as_ref()).into_owned())
}

impl Rig {
    /// What the site has answered, asked and proposed since.
    fn heard(&mut self) -> String {
        let Effects { proposals, questions, answers, .. } = std::mem::take(&mut self.effects);
        let mut heard: Vec<String> = Vec::new();
        for (id, answer) in answers {
            let told = match answer {
                Answer::Conflict(Conflict::Key(key)) => {
                    format!("conflict on {}", String::from_utf8_lossy(key.as_bytes()))
                }
                other => format!("{other:?}"),
            };
            heard.push(format!("{}.{}: {told}", id.session.0, id.attempt));
        }
        heard.extend(questions.iter().map(|(_, id)| format!("{}.{} asks", id.session.0, id.attempt)));
        for (_, entry) in proposals {
            let id = take_commit(&entry).expect("an entry").id;
            heard.push(format!("{}.{} proposes", id.session.0, id.attempt));
            self.entries.insert(id, entry.to_vec());
        }
        heard.join(", ")
    }

    fn space(&mut self, id: RequestId) -> &mut Workspace {
        let site = &self.site;
        let space = self.transactions.entry(id).or_default();
        space.get_or_insert_with(|| Box::new(Workspace::at(site.snapshot_of(id))))
    }

    /// `SESSION.ATTEMPT COMMAND ...`, or a command to the site.
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words[0].split_once('.').map(|(session, attempt)| {
            let session = SessionId(session.parse().expect("a session"));
            RequestId { session, sequence: 1, attempt: attempt.parse().expect("an attempt") }
        });
        let Some(id) = name else {
            match words[..] {
                ["skip", count] => {
                    for number in 0..count.parse::<u64>().expect("a number") {
                        let id = RequestId { session: SessionId(1_000_000), sequence: number, attempt: 0 };
                        let reads = Reads {
                            snapshot: self.site.partition.final_position(),
                            keys: Vec::new(),
                            scans: Vec::new(),
                            count: None,
                        };
                        let entry = put_commit(&Commit { id, reads, writes: WriteSet::default() });
                        self.site.decided(GROUP, &entry, &mut self.effects).expect("an entry");
                    }
                }
                ["tick", count] => {
                    let ticks = count.parse::<u64>().expect("a number");
                    (0..ticks).for_each(|_| self.site.tick(&mut self.effects));
                }
                ["leader"] => self.site.has_new_leader(GROUP, NodeId(1)),
                ["census"] => {
                    let census = self.site.view().census();
                    return format!("{} records, {} versions", census.records, census.versions);
                }
                ["restart"] => {
                    let state = self.site.snapshot(GROUP);
                    let mut site = Dur::over(Arc::new(Partition::new()), self.site.horizons);
                    site.restore(GROUP, &state).expect("a state");
                    assert_eq!(site.snapshot(GROUP), state);
                    self.site = site;
                }
                _ => panic!("no command: {line}"),
            }
            return self.heard();
        };
        match words[1..] {
            ["begin"] => self.site.begin(id, false, &mut self.effects),
            ["begin", "read-only"] => self.site.begin(id, true, &mut self.effects),
            ["reached"] => self.site.reached(id, &mut self.effects),
            ["get", name] => return text(now(self.space(id).read(&key(name), Intent::Read)).entry.as_ref()),
            ["put", name, value] => {
                self.space(id).write(&key(name), Some(Entry::new(value))).expect("a write")
            }
            ["delete", name] => self.space(id).write(&key(name), None).expect("a write"),
            ["clear"] => now(self.space(id).clear()),
            ["count"] => return now(self.space(id).count()).to_string(),
            ["list", limit] => {
                let range = ScanRange::of(Space::User, 0, limit.parse().expect("a limit"));
                let page = now(self.space(id).scan(range));
                let mut names: Vec<_> =
                    page.entries.iter().map(|(key, _)| String::from_utf8_lossy(key.as_bytes())).collect();
                names.sort_unstable();
                return names.join(" ");
            }
            ["commit"] => {
                self.space(id);
                let space = self.transactions.remove(&id).flatten().expect("a transaction");
                let (reads, writes) = space.into_sets();
                self.site.commit(id, reads, writes, &mut self.effects);
            }
            ["decide"] => {
                let entry = self.entries[&id].clone();
                self.site.check(GROUP, &entry).expect("an entry");
                self.site.decided(GROUP, &entry, &mut self.effects).expect("an entry");
            }
            _ => panic!("no command: {line}"),
        }
        self.heard()
    }
}

/// Runs a script.
fn check(script: &str) {
    check_at(Horizons::default(), script);
}

fn check_at(horizons: Horizons, script: &str) {
    let mut rig = Rig { site: Dur::over(Arc::new(Partition::new()), horizons), ..Rig::default() };
    let mut came = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix('>') {
            Some(expected) => assert_eq!(std::mem::take(&mut came), expected.trim(), "in\n{script}"),
            None => {
                assert!(came.is_empty(), "'{came}' before {line} in\n{script}");
                came = rig.run(line);
            }
        }
    }
    assert!(came.is_empty(), "'{came}' at the end of\n{script}");
}

const HISTORY: u64 = TOMBSTONE_HORIZON;

/// A transaction that puts a key, from beginning to end.
const A_IS_1: &str = "
    9.0 begin
    > 9.0: Begun
    9.0 put a 1
    9.0 commit
    > 9.0 proposes
    9.0 decide
    > 9.0: Committed
";

#[test]
fn the_first_of_two_that_read_the_same_commits() {
    check(
        "1.0 begin
         > 1.0: Begun
         2.0 begin
         > 2.0: Begun
         1.0 get a
         > -
         1.0 put a one
         1.0 commit
         > 1.0 proposes
         2.0 get a
         > -
         2.0 put b two
         2.0 commit
         > 2.0 proposes
         2.0 decide
         > 2.0: Committed
         1.0 decide
         > 1.0: Committed
         3.0 begin
         > 3.0: Begun
         3.0 get a
         > one
         3.0 put c three
         4.0 begin
         > 4.0: Begun
         4.0 get b
         > two
         4.0 put a four
         4.0 commit
         > 4.0 proposes
         3.0 get b
         > two
         3.0 commit
         > 3.0 proposes
         4.0 decide
         > 4.0: Committed
         3.0 decide
         > 3.0: conflict on a",
    );
}

#[test]
fn what_conflicts_with_its_own_site_is_not_proposed() {
    check(&format!(
        "1.0 begin
         > 1.0: Begun
         1.0 get a
         > -
         1.0 put b 1
         2.0 begin
         > 2.0: Begun
         2.0 list 10
         >
         2.0 put b 2
         3.0 begin
         > 3.0: Begun
         3.0 get a
         > -
         {A_IS_1}
         1.0 commit
         > 1.0: conflict on a
         2.0 commit
         > 2.0: Conflict(Listing)
         3.0 commit
         > 3.0: conflict on a"
    ));
}

#[test]
fn a_late_attempt_does_not_void_a_later_one() {
    check(
        "1.8 begin
         > 1.8: Begun
         1.8 put a 8
         1.0 begin
         > 1.0: Conflict(Superseded)
         1.8 commit
         > 1.8 proposes
         1.1 begin read-only
         > 1.1: Conflict(Superseded)
         1.8 decide
         > 1.8: Committed
         1.0 begin
         > 1.0: CommittedBefore",
    );
}

#[test]
fn a_transaction_of_a_forgotten_session_takes_effect_once() {
    let horizons = Horizons { session: 10, ..Horizons::default() };
    // The site of attempt 0 was slow. Session 65536 was opened behind entry 1, session 131072 behind entry 2.
    check_at(
        horizons,
        "skip 1
         65536.8 begin
         > 65536.8: Begun
         65536.8 put a 8
         65536.8 commit
         > 65536.8 proposes
         65536.8 decide
         > 65536.8: Committed
         65536.0 begin
         > 65536.0: CommittedBefore
         65537.0 begin
         > 65537.0: Begun
         65537.0 put a 0
         65537.0 commit
         > 65537.0 proposes
         skip 10
         restart
         65536.0 begin
         > 65536.0: Unknown
         65536.1 begin read-only
         > 65536.1 asks
         65536.1 reached
         > 65536.1: Begun
         65536.1 commit
         > 65536.1: Committed
         65537.0 decide
         65536.8 decide
         131072.0 begin
         > 131072.0: Unknown
         720896.0 begin
         > 720896.0: Begun
         720896.0 get a
         > 8
         720896.0 put a 9
         720896.0 commit
         > 720896.0 proposes
         720896.0 decide
         > 720896.0: Committed",
    );
}

#[test]
fn a_new_leader_is_told_soon() {
    check(
        "1.0 begin
         > 1.0: Begun
         1.0 put a 1
         1.0 commit
         > 1.0 proposes
         tick 1
         leader
         tick 1
         > 1.0 proposes
         1.0 decide
         > 1.0: Committed
         leader
         tick 1",
    );
}

#[test]
fn a_site_bounds_what_it_keeps() {
    let mut site = Dur::default();
    let effects = &mut Effects::default();
    let id = |session| RequestId { session: SessionId(session), sequence: 1, attempt: 0 };
    for session in 0..=crate::proposals::OPEN_MAX as u64 {
        site.begin(id(session), false, effects);
    }
    assert_eq!(
        effects.answers.iter().filter(|(_, answer)| *answer == Answer::Begun).count(),
        site.open.len()
    );
    assert_eq!(effects.answers.last(), Some(&(id(site.open.len() as u64), Answer::Unavailable)));
    // Another site's state replaces this one's: nothing holds the old data but a thread that executes there.
    let (old, state) = (Arc::downgrade(&site.partition), site.snapshot(GROUP));
    let executes = site.snapshot_of(id(0));
    site.restore(GROUP, &state).expect("a state");
    assert!(executes.is_some() && old.upgrade().is_some());
    drop(executes);
    assert!(old.upgrade().is_none());
    site.commit(id(0), ReadSet::default(), WriteSet::default(), effects);
    assert_eq!(effects.answers.last(), Some(&(id(0), Answer::Conflict(Conflict::Snapshot))));
}

#[test]
fn a_state_or_an_entry_that_claims_too_much_is_malformed() {
    let mut site = Dur::default();
    let state = |parts: &[u64]| {
        let mut out = Vec::new();
        parts.iter().for_each(|&part| put_varint(&mut out, part));
        out
    };
    for (parts, is_one) in [
        (&[3, 0, 0, 0][..], true),
        (&[u64::MAX, 0, 0, 0], false),
        (&[3, 4, 0, 0], false),
        (&[3, 0, u64::MAX, 0], false),
        (&[3, 0, 0, u64::MAX], false),
        (&[3, 0, 0, 1, 7, 1, 0, 1, 3], true),
        (&[3, 0, 0, 1, 7, 1, 0, 1, 4], false),
        (&[3, 0, 1, 0, 1, 9, 2, 0, 0], true),
        (&[3, 0, 2, 0, 1, 9, 2, 0, 0, 1, 9, 2, 0, 0], false),
    ] {
        assert_eq!(site.restore(GROUP, &state(parts)).is_ok(), is_one, "{parts:?}");
    }
    for place in 4..7 {
        let mut parts = [7, 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(site.check(GROUP, &state(&parts)), Ok(()));
        parts[place] = u64::MAX;
        assert_eq!(site.check(GROUP, &state(&parts)), Err(Malformed), "{place}");
    }
}

#[test]
fn who_writes_without_reading_conflicts_with_nobody() {
    check(&format!(
        "1.0 begin
         > 1.0: Begun
         1.0 put a blind
         {A_IS_1}
         1.0 commit
         > 1.0 proposes
         1.0 decide
         > 1.0: Committed
         2.0 begin
         > 2.0: Begun
         2.0 get a
         > blind"
    ));
}

#[test]
fn a_read_only_transaction_asks_first_and_commits_on_its_snapshot() {
    check(&format!(
        "1.0 begin read-only
         > 1.0 asks
         {A_IS_1}
         1.0 reached
         > 1.0: Begun
         8.0 begin
         > 8.0: Begun
         8.0 put a 2
         8.0 commit
         > 8.0 proposes
         8.0 decide
         > 8.0: Committed
         1.0 get a
         > 1
         1.0 get b
         > -
         1.0 commit
         > 1.0: Committed"
    ));
}

#[test]
fn a_transaction_that_turns_out_to_write_nothing_asks_at_its_end() {
    check(&format!(
        "1.0 begin
         > 1.0: Begun
         1.0 get a
         > -
         2.0 begin
         > 2.0: Begun
         2.0 get b
         > -
         1.0 commit
         > 1.0 asks
         2.0 commit
         > 2.0 asks
         {A_IS_1}
         1.0 reached
         > 1.0: conflict on a
         2.0 reached
         > 2.0: Committed"
    ));
}

#[test]
fn a_later_attempt_without_writes_supersedes_an_earlier_one_that_is_on_its_way() {
    check(
        "1.0 begin
         > 1.0: Begun
         1.0 put a 1
         1.0 commit
         > 1.0 proposes
         1.1 begin
         > 1.1: Begun
         1.1 commit
         > 1.1 proposes
         1.1 decide
         > 1.1: Committed
         1.0 decide
         2.0 begin
         > 2.0: Begun
         2.0 get a
         > -",
    );
}

#[test]
fn a_transaction_takes_effect_once() {
    check(
        "1.0 begin
         > 1.0: Begun
         1.0 put a 1
         1.0 commit
         > 1.0 proposes
         1.1 begin
         > 1.1: Begun
         1.1 put a 1
         1.1 commit
         > 1.1 proposes
         1.0 decide
         2.0 begin
         > 2.0: Begun
         2.0 put a 2
         2.0 commit
         > 2.0 proposes
         2.0 decide
         > 2.0: Committed
         1.1 decide
         > 1.1: CommittedBefore
         restart
         1.0 decide
         1.2 begin
         > 1.2: CommittedBefore
         3.0 begin
         > 3.0: Begun
         3.0 get a
         > 2",
    );
}

#[test]
fn what_was_refused_stays_refused_although_its_listing_is_right_again() {
    check(
        "1.0 begin
         > 1.0: Begun
         1.0 list 10
         >
         1.0 put b 1
         1.0 commit
         > 1.0 proposes
         2.0 begin
         > 2.0: Begun
         2.0 put a 1
         2.0 commit
         > 2.0 proposes
         2.0 decide
         > 2.0: Committed
         1.0 decide
         > 1.0: Conflict(Listing)
         3.0 begin
         > 3.0: Begun
         3.0 delete a
         3.0 commit
         > 3.0 proposes
         3.0 decide
         > 3.0: Committed
         1.0 decide
         4.0 begin
         > 4.0: Begun
         4.0 count
         > 0",
    );
}

/// What a transaction does in the meantime, whether a listing of two, of all, and a count hold. Pages have
/// the order of hashes: the names stand for the keys from the least hash to the greatest.
#[test]
fn listings_and_counts_are_certified() {
    let mut keys: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
    keys.sort_by_key(|name| key(name).hash64());
    let named = |command: &str| {
        let words = command.split(' ').map(|word| {
            match ["first", "second", "third", "fourth", "last"].iter().position(|name| *name == word) {
                Some(place) => keys[place].as_str(),
                None => word,
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    for (meanwhile, two, all, count) in [
        ("put last 9", true, false, false),
        ("put first 9", false, false, true),
        ("put fourth 9", true, false, true),
        ("delete second", false, false, false),
        ("delete fourth", true, false, false),
        ("clear", false, false, false),
        ("delete nothing", true, true, true),
    ] {
        for (look, holds) in [("list 2", two), ("list 10", all), ("count", count)] {
            let mut rig = Rig::default();
            let mut run = |session: u64, commands: &[&str]| {
                let mut came = String::new();
                for command in commands {
                    came = rig.run(&format!("{session}.0 {}", named(command)));
                }
                came
            };
            let puts = ["put first 1", "put second 1", "put third 1", "put fourth 1"];
            run(1, &[&["begin"][..], &puts, &["commit", "decide"]].concat());
            run(2, &["begin", look, "put mine 1", "commit"]);
            run(3, &["begin", meanwhile, "commit", "decide"]);
            let expected = if holds { "2.0: Committed" } else { "2.0: Conflict(Listing)" };
            assert_eq!(run(2, &["decide"]), expected, "{look}, and {meanwhile}");
        }
    }
}

#[test]
fn a_transaction_sees_its_own_writes() {
    check(&format!(
        "{A_IS_1}
         1.0 begin
         > 1.0: Begun
         1.0 put b 2
         1.0 list 10
         > a b
         1.0 count
         > 2
         1.0 delete a
         1.0 get a
         > -
         1.0 count
         > 1
         1.0 list 10
         > b
         1.0 clear
         1.0 get b
         > -
         1.0 put c 3
         1.0 list 10
         > c
         1.0 count
         > 1
         1.0 commit
         > 1.0 proposes
         1.0 decide
         > 1.0: Committed
         restart
         2.0 begin
         > 2.0: Begun
         2.0 list 10
         > c
         2.0 count
         > 1"
    ));
}

#[test]
fn versions_are_kept_for_snapshots_and_no_longer() {
    check(&format!(
        "{A_IS_1}
         1.0 begin
         > 1.0: Begun
         1.0 get b
         > -
         2.0 begin
         > 2.0: Begun
         2.0 put a 2
         2.0 commit
         > 2.0 proposes
         2.0 decide
         > 2.0: Committed
         tick 40
         census
         > 1 records, 2 versions
         1.0 get a
         > 1
         1.0 commit
         > 1.0: conflict on a
         skip 1
         tick 40
         census
         > 1 records, 1 versions"
    ));
}

#[test]
fn a_snapshot_older_than_the_history_conflicts() {
    let at = |entries: u64, came: &str| {
        check(&format!(
            "1.0 begin
             > 1.0: Begun
             1.0 get a
             > -
             1.0 put a 1
             1.0 commit
             > 1.0 proposes
             skip {entries}
             1.0 decide
             > 1.0: {came}"
        ));
    };
    at(HISTORY - 1, "Committed");
    at(HISTORY, "Conflict(Snapshot)");
    // The site takes the snapshot away from a client that thinks for too long.
    check(&format!(
        "1.0 begin
         > 1.0: Begun
         skip {HISTORY}
         tick 1
         1.0 commit
         > 1.0: Conflict(Snapshot)"
    ));
}

#[test]
fn a_delete_is_found_as_long_as_a_snapshot_may_lie_before_it() {
    check(&format!(
        "{A_IS_1}
         1.0 begin
         > 1.0: Begun
         1.0 get a
         > 1
         1.0 put b 1
         1.0 commit
         > 1.0 proposes
         2.0 begin
         > 2.0: Begun
         2.0 delete a
         2.0 commit
         > 2.0 proposes
         2.0 decide
         > 2.0: Committed
         skip {}
         tick 1
         restart
         1.0 decide
         3.0 begin
         > 3.0: Begun
         3.0 get b
         > -",
        HISTORY - 2
    ));
}

#[test]
fn a_proposal_that_is_lost_comes_again() {
    check(
        "1.0 begin
         > 1.0: Begun
         1.0 put a 1
         1.0 commit
         > 1.0 proposes
         tick 19
         tick 1
         > 1.0 proposes
         1.0 decide
         > 1.0: Committed
         tick 1000",
    );
}

#[test]
fn what_is_malformed_changes_nothing() {
    let mut rig = Rig::default();
    for command in ["begin", "list 3", "count", "get a", "put b 1", "commit", "decide"] {
        rig.run(&format!("1.0 {command}"));
    }
    for command in ["begin", "clear", "put c 1", "commit", "decide"] {
        rig.run(&format!("2.0 {command}"));
    }
    let state = rig.site.snapshot(GROUP);
    let entry = rig.entries.values().next().expect("an entry").clone();
    for cut in 0..state.len() {
        assert_eq!(rig.site.restore(GROUP, &state[..cut]), Err(Malformed), "{cut}");
    }
    for cut in 0..entry.len() {
        assert_eq!(rig.site.check(GROUP, &entry[..cut]), Err(Malformed), "{cut}");
        assert_eq!(rig.site.decided(GROUP, &entry[..cut], &mut rig.effects), Err(Malformed), "{cut}");
    }
    assert_eq!(rig.site.snapshot(GROUP), state);
}
