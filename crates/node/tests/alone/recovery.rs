//! From files to a node: replay, checkpoints, damage, and crashes at random instants.

use crate::rig::{Rig, StartRefused, checkpoint_name, files, options};
use log::{Disk, DiskFile};
use order::Skips;
use ordo_node::FsyncPolicy;
use ordo_node::cluster::{ClusterEvent, ClusterOptions, ClusterRecoverError, LoadError};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::hash::mix;
use txn::{Epoch, Position, RequestName, SessionId};

fn rig(disk: &Arc<VirtualDisk>) -> Rig {
    Rig::recover(disk, options(FsyncPolicy::No)).unwrap()
}

fn refusal(disk: &Arc<VirtualDisk>, options: ClusterOptions) -> StartRefused {
    Rig::recover(disk, options).err().expect("the start is refused")
}

/// A node that takes checkpoints only when the test wants one.
fn on_demand(fsync: FsyncPolicy) -> ClusterOptions {
    ClusterOptions { checkpoint_bytes: 0, ..options(fsync) }
}

#[test]
fn the_log_alone_is_the_database() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    for _ in 0..20 {
        first.submit("a", 7).unwrap();
    }
    let boot = first.node.boot();
    let mut second = rig(&disk);
    assert_eq!((second.replayed, second.began, second.value("a")), (140, Position::NONE, 140));
    assert_eq!(second.node.status().newest_checkpoint, Epoch(0));
    assert!(second.node.boot() > boot, "sessions of the second process have names of their own");
    second.submit("a", 1).unwrap();
    assert_eq!((second.last(), second.value("a")), (Position(141), 141));
}

#[test]
fn checkpoints_without_a_log_are_no_empty_database() {
    for name in ["checkpoint-00003-00000000000000000017.ordo", "checkpoint-00000000000000000017.ordo"] {
        let disk = Arc::new(VirtualDisk::new(1));
        disk.create(name, 0).unwrap();
        let refused = refusal(&disk, options(FsyncPolicy::No));
        assert!(matches!(refused, StartRefused::LogMissing), "{refused}");
        assert_eq!(disk.list().unwrap(), [name], "nothing was made");
    }
}

#[test]
fn a_long_load_tells_how_far_it_is() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = Rig::recover(&disk, on_demand(FsyncPolicy::No)).unwrap();
    for n in 0..9_000 {
        first.submit(&format!("k{n}"), 1).unwrap();
        // The test looks at no reply.
        first.replies.clear();
    }
    first.checkpoint();
    first.submit("a", 100).unwrap();
    let second = Rig::recover(&disk, on_demand(FsyncPolicy::No)).unwrap();
    assert_eq!((second.told, second.replayed), (vec![4_096, 8_192], 100));
}

#[test]
fn a_checkpoint_waits_for_the_engine_and_is_of_a_whole_epoch() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = Rig::recover(&disk, on_demand(FsyncPolicy::No)).unwrap();
    first.submit("a", 5).unwrap();
    first.is_engine_held = true;
    first.submit("a", 6).unwrap();
    let epoch = first.node.confirmed().epoch;
    first.handle(ClusterEvent::CheckpointWanted);
    first.submit("a", 3).unwrap();
    for _ in 0..3 {
        first.step(1);
        first.tick(0);
    }
    assert_eq!(first.last(), Position(8));
    assert!(first.hands.checkpoint.is_none(), "the engine has not come to the checkpoint's epoch");
    first.is_engine_held = false;
    first.tick(0);
    // The node looks at its engine at a tick.
    first.tick(0);
    assert_eq!(first.value("a"), 14, "the engine is behind the checkpoint's epoch");
    let checkpoint = first.finish_checkpoint();
    assert!(checkpoint > epoch);
    first.hands.records.journal.sync().unwrap();
    // The checkpoint's requests were executed. The requests behind it can still be skipped.
    let session = first.session();
    let refused = refusal(&disk, skipping(&[(checkpoint, session, 8)]));
    assert!(matches!(refused, StartRefused::Node(ClusterRecoverError::SkipsTooLate(_))), "{refused}");
    let behind = Arc::new(disk.copy_of_durable(2));
    let without = Rig::recover(&behind, skipping(&[(Epoch(checkpoint.0 + 1), session, 13)])).unwrap();
    assert_eq!((without.value("a"), without.last()), (13, Position(14)));
    let second = Rig::recover(&disk, on_demand(FsyncPolicy::No)).unwrap();
    assert_eq!((second.began, second.replayed), (Position(11), 3));
    assert_eq!((second.value("a"), second.last()), (14, Position(14)));
}

/// Options with which requests are skipped: epoch, session and number of each.
fn skipping(names: &[(Epoch, SessionId, u64)]) -> ClusterOptions {
    let mut skips = Skips::default();
    for &(epoch, session, sequence) in names {
        skips.add(RequestName { epoch, session, sequence });
    }
    ClusterOptions { skips: Arc::new(skips), ..on_demand(FsyncPolicy::No) }
}

#[test]
fn what_is_skipped_is_not_executed_when_the_log_is_replayed() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    first.submit("a", 3).unwrap();
    let epoch = first.node.confirmed().epoch;
    first.submit("a", 2).unwrap();
    let session = first.session();
    let mut second = Rig::recover(&disk, skipping(&[(epoch, session, 2)])).unwrap();
    assert_eq!((second.value("a"), second.last()), (4, Position(5)));
    second.submit("a", 1).unwrap();
    second.checkpoint();
    assert_eq!(second.value("a"), 5);

    // A request that is named only now was executed before the checkpoint was made.
    let refused = refusal(&disk, skipping(&[(epoch, session, 3)]));
    assert!(matches!(refused, StartRefused::Node(ClusterRecoverError::SkipsTooLate(_))), "{refused}");
    assert!(refused.to_string().contains("--skip"), "{refused}");
    // A skip that was in force before the checkpoint stays in force.
    let mut skips = Skips::default();
    skips.add(format!("{}:{}:2", epoch.0, session.0).parse().unwrap());
    skips.enforce();
    let third = ClusterOptions { skips: Arc::new(skips), ..options(FsyncPolicy::No) };
    let third = Rig::recover(&disk, third).unwrap();
    assert_eq!((third.value("a"), third.replayed), (5, 0));
}

#[test]
fn two_checkpoints_are_kept_and_the_log_from_the_older_one_on() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    let mut epochs = Vec::new();
    for round in 0..5 {
        for _ in 0..40 {
            first.submit("a", 5).unwrap();
        }
        epochs.push(first.checkpoint());
        let older = if round > 0 { epochs[round - 1] } else { Epoch(0) };
        assert_eq!(first.node.status().log_begin, older);
    }
    assert_eq!(files(&disk, "checkpoint-"), [checkpoint_name(epochs[3]), checkpoint_name(epochs[4])]);
    let segments = files(&disk, "log-");
    assert!(segments[0].as_str() > "log-00000000000000000001.ordo", "{segments:?}");
    assert_eq!(segments, first.hands.records.journal.segment_names());
    let second = rig(&disk);
    assert_eq!((second.began, second.replayed, second.value("a")), (Position(1000), 0, 1000));
    assert_eq!(second.node.status().newest_checkpoint, epochs[4]);
    assert_eq!(second.node.status().log_begin, epochs[3]);
}

#[test]
fn a_checkpoint_counts_once_the_journal_tells_of_it() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = Rig::recover(&disk, on_demand(FsyncPolicy::Always)).unwrap();
    first.submit("a", 5).unwrap();
    first.end_syncs();
    let before = first.checkpoint();
    first.submit("a", 5).unwrap();
    first.handle(ClusterEvent::CheckpointWanted);
    first.end_syncs();
    first.write_checkpoint();
    assert_eq!(first.node.status().newest_checkpoint, before, "its record is not durable");
    assert_eq!(files(&disk, "checkpoint-").len(), 2);
    let copy = Arc::new(disk.copy_of_durable(2));
    let second = Rig::recover(&copy, on_demand(FsyncPolicy::Always)).unwrap();
    assert_eq!((second.began, second.value("a")), (Position(5), 10));
    first.end_syncs();
    assert!(first.node.status().newest_checkpoint > before);
    let third = Rig::recover(&Arc::new(disk.copy_of_durable(3)), on_demand(FsyncPolicy::Always)).unwrap();
    assert_eq!((third.began, third.value("a")), (Position(10), 10));
}

/// What is to be found behind damaged files.
#[derive(Clone, Copy)]
enum Expected {
    /// The newest checkpoint and the log behind it.
    Newest,
    /// The older checkpoint and the log behind it.
    Older,
    /// A refusal with this text.
    Refusal(&'static str),
}

/// A disk with two checkpoints of 100 and 200 additions, and 100 more in the log; and the checkpoints' names,
/// the older one first.
fn with_two_checkpoints() -> (Arc<VirtualDisk>, [String; 2]) {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    let names = [(); 2].map(|()| {
        for _ in 0..20 {
            first.submit("a", 5).unwrap();
        }
        checkpoint_name(first.checkpoint())
    });
    for _ in 0..20 {
        first.submit("a", 5).unwrap();
    }
    first.hands.records.journal.sync().unwrap();
    (disk, names)
}

/// Damages what `damage` says of two checkpoints, the older one first; expects 300 additions or a refusal.
fn check_damage(damage: impl FnOnce(&VirtualDisk, &[String; 2]), expected: Expected) {
    let (disk, names) = with_two_checkpoints();
    damage(&disk, &names);
    let began = match expected {
        Expected::Newest => Position(200),
        Expected::Older => Position(100),
        Expected::Refusal(text) => {
            let before = disk.list().unwrap();
            let refused = refusal(&disk, options(FsyncPolicy::No));
            assert!(refused.to_string().contains(text), "{refused}");
            assert_eq!(disk.list().unwrap(), before, "nothing was changed");
            return;
        }
    };
    let is_older = matches!(expected, Expected::Older);
    // The second start finds the same as the first one, which has put a damaged file aside.
    for _ in 0..2 {
        let found = rig(&disk);
        assert_eq!((found.began, found.value("a"), found.last()), (began, 300, Position(300)));
        assert_eq!(found.replayed as u64, 300 - began.0);
        assert_eq!(found.unusable.is_some(), is_older, "{:?}", found.unusable);
        assert_eq!(found.report.cut, None);
        assert_eq!(found.warnings, Vec::<String>::new());
    }
}

#[test]
fn damage_is_survived_where_older_files_suffice_and_named_where_not() {
    let flip = |disk: &VirtualDisk, name: &String| disk.flip_bit(name, 60, 3);
    let remove_log = |disk: &VirtualDisk, which: std::ops::Range<usize>| {
        files(disk, "log-")[which].iter().for_each(|name| disk.remove(name).unwrap());
    };
    check_damage(|_, _| {}, Expected::Newest);
    check_damage(|disk, [older, _]| flip(disk, older), Expected::Newest);
    check_damage(|disk, [_, newer]| flip(disk, newer), Expected::Older);
    check_damage(|disk, [_, newer]| disk.remove(newer).unwrap(), Expected::Older);
    let both = |disk: &VirtualDisk, names: &[String; 2]| names.iter().for_each(|name| flip(disk, name));
    check_damage(both, Expected::Refusal("cannot be used"));
    let no_log = |disk: &VirtualDisk, _: &[String; 2]| remove_log(disk, 0..files(disk, "log-").len());
    check_damage(no_log, Expected::Refusal("no log"));
    check_damage(|disk, _| remove_log(disk, 0..1), Expected::Refusal("the journal begins with record"));
    let unfinished = |disk: &VirtualDisk, _: &[String; 2]| {
        let name = "unfinished-00000-00000000000000000900.ordo";
        disk.create(name, 0).unwrap().write_at(0, b"half a checkpoint").unwrap();
    };
    check_damage(unfinished, Expected::Newest);
}

#[test]
fn a_damaged_only_checkpoint_leaves_the_whole_log() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    first.submit("a", 5).unwrap();
    let name = checkpoint_name(first.checkpoint());
    first.submit("a", 5).unwrap();
    disk.flip_bit(&name, 60, 3);
    let second = rig(&disk);
    assert_eq!((second.began, second.replayed, second.value("a")), (Position::NONE, 10, 10));
    assert!(second.unusable.is_some());
}

#[test]
fn what_cannot_be_used_is_put_aside_and_taken_anew() {
    let (disk, [older, newer]) = with_two_checkpoints();
    disk.flip_bit(&newer, 60, 3);
    let mut found = rig(&disk);
    assert!(matches!(&found.unusable, Some(LoadError::File { name, .. }) if *name == newer));
    assert_eq!(files(&disk, "damaged-"), [format!("damaged-{newer}")]);
    assert_eq!(files(&disk, "checkpoint-"), std::slice::from_ref(&older));
    // The order still says that a checkpoint is taken there.
    let epoch = found.finish_checkpoint();
    assert_eq!(checkpoint_name(epoch), newer);
    assert_eq!(files(&disk, "checkpoint-"), [older, newer]);
    found.hands.records.journal.sync().unwrap();
    disk.crash();
    let again = rig(&disk);
    assert!(again.unusable.is_none());
    assert_eq!((again.began, again.value("a")), (Position(200), 300));
    assert_eq!(files(&disk, "damaged-").len(), 1, "an operator can look for the cause");
}

#[test]
fn behind_a_fallback_the_next_checkpoints_count_again() {
    // Whether the damaged checkpoint is taken anew before the next one is.
    for is_taken_anew in [false, true] {
        let (disk, [_, newer]) = with_two_checkpoints();
        disk.flip_bit(&newer, 60, 3);
        let mut found = rig(&disk);
        let mut newest = Epoch(0);
        if is_taken_anew {
            newest = found.finish_checkpoint();
        } else {
            // The process that would have taken it ends.
            found.disk.fail_write_after(0);
            found.write_checkpoint();
            assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
        }
        for round in 1..4 {
            found.submit("a", 10).unwrap();
            let epoch = found.checkpoint();
            assert!(checkpoint_name(epoch) > newer && epoch > newest, "a candidate never goes back");
            newest = epoch;
            found.submit("a", 1).unwrap();
            found.hands.records.journal.sync().unwrap();
            disk.crash();
            found = rig(&disk);
            assert!(found.unusable.is_none(), "{:?}", found.unusable);
            assert_eq!((found.began, found.replayed), (Position(299 + 11 * round), 1));
            assert_eq!(
                (found.value("a"), found.node.status().newest_checkpoint),
                (300 + 11 * round as i64, newest)
            );
        }
    }
}

#[test]
fn a_checkpoint_of_another_database_is_not_mixed_with_this_log() {
    let (here, there) = (Arc::new(VirtualDisk::new(1)), Arc::new(VirtualDisk::new(2)));
    for (disk, key) in [(&here, "a"), (&there, "b")] {
        let mut rig = Rig::recover(disk, on_demand(FsyncPolicy::Always)).unwrap();
        rig.submit(key, 6).unwrap();
        rig.checkpoint();
    }
    let name = files(&there, "checkpoint-").remove(0);
    let file = there.open(&name).unwrap();
    let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    here.remove(&name).unwrap();
    here.create(&name, 0).unwrap().write_at(0, &bytes).unwrap();
    let refused = refusal(&here, options(FsyncPolicy::Always));
    assert!(matches!(refused, StartRefused::Checkpoint(LoadError::Foreign { .. })), "{refused}");
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_older_ones() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    first.submit("a", 5).unwrap();
    let older = first.checkpoint();
    first.submit("a", 5).unwrap();
    first.handle(ClusterEvent::CheckpointWanted);
    disk.fill_up_after(0);
    first.write_checkpoint();
    assert!(first.warnings[0].contains("a checkpoint could not be written"), "{:?}", first.warnings);
    assert_eq!(first.node.status().newest_checkpoint, older);
    assert_eq!(disk.list().unwrap().len(), 2, "nothing is left of it");
    disk.make_space();
    let mut second = rig(&disk);
    assert_eq!((second.began, second.value("a")), (Position(5), 10));
    assert!(second.finish_checkpoint() > older, "the order still says that one is taken there");
    // Without a restart the next checkpoint is written as well.
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = rig(&disk);
    first.submit("a", 5).unwrap();
    first.handle(ClusterEvent::CheckpointWanted);
    disk.fail_write_after(0);
    first.write_checkpoint();
    assert_eq!(first.node.status().newest_checkpoint, Epoch(0));
    first.checkpoint();
}

#[test]
fn checkpoints_come_by_themselves_after_enough_log() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut opts = options(FsyncPolicy::Everysec);
    opts.checkpoint_bytes = 5000;
    let mut first = Rig::recover(&disk, opts).unwrap();
    let mut batches = 0;
    while first.hands.checkpoint.is_none() {
        first.submit("a", 1).unwrap();
        batches += 1;
    }
    assert!((100..200).contains(&batches), "{batches}");
    assert!(first.finish_checkpoint() > Epoch(0));
}

#[test]
fn the_next_checkpoint_comes_after_as_much_log_as_the_last_one_has() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut opts = options(FsyncPolicy::Everysec);
    opts.checkpoint_bytes = 2000;
    let log_until_due = |rig: &mut Rig| {
        let mut log_bytes = 0;
        while rig.hands.checkpoint.is_none() {
            // What is ordered already counts from there.
            log_bytes = log_bytes.max(rig.node.status().log_bytes_since_checkpoint);
            rig.submit("a", 1).unwrap();
        }
        rig.finish_checkpoint();
        // Without the batch that made the checkpoint due.
        log_bytes
    };
    let newest_bytes = || {
        let names = disk.list().unwrap();
        let newest = names.iter().filter(|name| name.starts_with("checkpoint-"));
        let newest = disk.open(newest.max().unwrap()).unwrap();
        newest.len_bytes().unwrap()
    };
    let mut rig = Rig::recover(&disk, opts.clone()).unwrap();
    assert!((1800..2000).contains(&log_until_due(&mut rig)));
    assert!(newest_bytes() < 2000, "one key: the floor counts");
    assert!((1800..2000).contains(&log_until_due(&mut rig)));
    for key in 0..500 {
        rig.submit(&format!("key-{key}"), 1).unwrap();
        if rig.hands.checkpoint.is_some() {
            rig.finish_checkpoint();
        }
    }
    rig.checkpoint();
    let wanted = newest_bytes();
    assert!(wanted > 5000, "{wanted}");
    let found = log_until_due(&mut rig);
    assert!((wanted - 200..wanted).contains(&found), "{found}, {wanted}");
    // A start knows both sizes from the files, and what it has found is old: the floor is enough.
    for _ in 0..10 {
        rig.submit("a", 1).unwrap();
    }
    let before = rig.node.status().log_bytes_since_checkpoint;
    drop(rig);
    let mut rig = Rig::recover(&disk, opts).unwrap();
    // The batch that made the checkpoint due was not yet in it.
    let behind = rig.node.status().log_bytes_since_checkpoint;
    assert!((before..before + 200).contains(&behind), "{behind}, {before}");
    let found = log_until_due(&mut rig);
    assert!((1800..2000).contains(&found), "{found}");
    let wanted = newest_bytes();
    let found = log_until_due(&mut rig);
    assert!((wanted - 200..wanted).contains(&found), "{found}, {wanted}");
}

/// One life after another on one disk, each ended by a crash: under `always`, everything that was
/// acknowledged is there, and nothing that nobody has asked for.
fn crashes(seed: u64) {
    println!("seed {seed}: set ORDO_SEED={seed} to run it alone");
    let mut draws = seed;
    let mut draw = |below: u64| {
        draws = draws.wrapping_add(1);
        mix(draws) % below
    };
    let disk = Arc::new(VirtualDisk::new(seed));
    let mut opts = options(FsyncPolicy::Always);
    opts.checkpoint_bytes = 3000;
    let (mut acknowledged, mut asked_for) = (0, 0);
    for life in 0..8 {
        let started = Rig::recover(&disk, opts.clone());
        let mut rig = started.unwrap_or_else(|refused| panic!("seed {seed}, life {life}: {refused}"));
        let found = rig.value("a");
        assert!(
            (acknowledged..=asked_for).contains(&found),
            "seed {seed}, life {life}: {found} additions, {acknowledged} were acknowledged, {asked_for} \
             were asked for"
        );
        assert!(rig.unusable.is_none(), "seed {seed}, life {life}: {:?}", rig.unusable);
        asked_for = found;
        for _ in 0..draw(60) {
            match draw(12) {
                0..6 => {
                    let count = 1 + draw(8);
                    if rig.submit("a", count as usize).is_ok() {
                        asked_for += count as i64;
                    }
                }
                6..9 => _ = rig.end_sync(),
                9 => rig.wait_ms(draw(1_500)),
                10 if rig.hands.checkpoint.is_some() => rig.write_checkpoint(),
                10 => disk.fill_up_after(draw(2_000)),
                _ => disk.make_space(),
            }
        }
        if draw(4) == 0 {
            disk.fail_sync_after(draw(2));
            rig.end_sync();
        }
        acknowledged = found + rig.acknowledged() as i64;
        assert!((acknowledged..=asked_for).contains(&rig.value("a")), "seed {seed}, life {life}");
        disk.crash();
    }
}

#[test]
fn what_was_acknowledged_survives_crashes_full_disks_and_failed_syncs() {
    match std::env::var("ORDO_SEED") {
        Ok(seed) => crashes(seed.parse().expect("ORDO_SEED is a number")),
        Err(_) => (0..300).for_each(crashes),
    }
}

/// The state digest as of the final position.
fn digest(rig: &Rig) -> Option<u64> {
    rig.engine.view().digests().note_at(rig.last()).digest()
}

#[test]
fn the_state_digest_goes_on_through_checkpoints_and_replays() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut first = Rig::recover(&disk, on_demand(FsyncPolicy::Always)).unwrap();
    while first.node.map().level < ordo_node::cluster::LEVEL {
        first.wait_ms(1_000);
        first.end_syncs();
    }
    first.submit("a", 5).unwrap();
    first.end_syncs();
    let early = digest(&first).expect("it is known");
    first.checkpoint();
    first.submit("b", 6).unwrap();
    first.end_syncs();
    let late = digest(&first).expect("it is known");
    assert!(early != 0 && early != late);
    // Each begins behind a checkpoint, and executes what follows it.
    for _ in 0..2 {
        let mut next = Rig::recover(&disk, on_demand(FsyncPolicy::Always)).unwrap();
        assert!(next.began > Position::NONE);
        assert_eq!((next.value("b"), digest(&next)), (6, Some(late)));
        next.checkpoint();
        assert_eq!(digest(&next), Some(late));
    }
}
