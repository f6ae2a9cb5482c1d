//! What stays on the disk. Scripts in `scripts/checkpoints/`.

use super::*;
use crate::cluster::checkpoint::{epoch_of_name, prune, unfinished_name};
use crate::cluster::fixtures::{P0, P1, bases, map, taken, write};
use crate::cluster::script::{Scripted, node, number, partition, run};
use log::{Disk, DiskFile};
use sim::disk::VirtualDisk;

/// Of partition 0, from what is being written on: the engines are not asked.
#[derive(Default)]
struct Checkpoint {
    checkpoints: Checkpoints,
    now_tick: u64,
}

fn said(yes: bool) -> Vec<String> {
    vec![if yes { "yes" } else { "no" }.to_owned()]
}

impl Scripted for Checkpoint {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        let epoch = |word| Epoch(number(word));
        let of = |epoch: Epoch| bases(epoch.0, &map(&[P0]), &[P0]);
        let wishes = match *words {
            ["tick", tick] => {
                self.now_tick = number(tick);
                Vec::new()
            }
            ["start", "behind", at] => {
                let begin = (epoch(at), of(epoch(at)));
                self.checkpoints = Checkpoints::new(begin, epoch(at), None, None, Schedule::default());
                Vec::new()
            }
            ["due", "at", at] => said(self.checkpoints.is_due_at(epoch(at), false, 0)),
            ["due", "at", at, "fetching"] => said(self.checkpoints.is_due_at(epoch(at), true, 0)),
            ["write", at] => {
                self.checkpoints.write(epoch(at), of(epoch(at)));
                Vec::new()
            }
            ["failed"] => {
                self.checkpoints.failed();
                Vec::new()
            }
            ["written", at, "counts"] => said(self.checkpoints.written(epoch(at), 1, Counts::AtOnce)),
            ["written", at, "to", "be", "recorded"] => {
                said(self.checkpoints.written(epoch(at), 1, Counts::OnceRecorded { start: false }))
            }
            ["fetched", at] => {
                self.checkpoints.record_fetched(epoch(at), of(epoch(at)));
                Vec::new()
            }
            ["recorded", at] => {
                self.checkpoints.recorded(epoch(at));
                Vec::new()
            }
            ["heard", from, at] => {
                self.checkpoints.heard(node(from), epoch(at));
                Vec::new()
            }
            ["safe"] => vec![format!("epoch {}", self.checkpoints.safe(NodeId(1), &map(&[P0])).0)],
            ["cut", "behind", at] => {
                let cut = self.checkpoints.take_cut(epoch(at));
                cut.map(|(epoch, _)| format!("logs begin behind epoch {}", epoch.0)).into_iter().collect()
            }
            ["lost", "upto", at] => {
                self.checkpoints.lose(epoch(at));
                Vec::new()
            }
            ["rebased", at] => {
                let good = self.checkpoints.rebased(epoch(at));
                good.map(|lost| format!("what was lost up to epoch {} is made good", lost.0))
                    .into_iter()
                    .collect()
            }
            ["asked", of, at] => said(self.checkpoints.asked(partition(of), epoch(at), self.now_tick)),
            ["needed"] => {
                let needed = self.checkpoints.needed(self.now_tick, None);
                let epochs: Vec<u64> = needed.epochs.iter().map(|epoch| epoch.0).collect();
                vec![format!("{epochs:?} of those up to {}", needed.upto.0)]
            }
            ["newest"] => vec![format!("epoch {}", self.checkpoints.newest().0)],
            ["candidate"] => said(self.checkpoints.take_candidate().is_some()),
            ["next", "starts", "behind", "newest"] => said(self.checkpoints.start_behind_newest()),
            _ => panic!("no input: {words:?}"),
        };
        self.checkpoints.check_invariants();
        wishes
    }
}

#[test]
fn scripts_of_checkpoints_come_out_as_they_are_written() {
    run::<Checkpoint>("checkpoints");
}

fn epochs(disk: &VirtualDisk) -> BTreeSet<u64> {
    let names = disk.list().expect("names");
    let epochs = names.iter().filter_map(|name| epoch_of_name(name));
    epochs.map(|epoch| epoch.0).collect()
}

#[test]
fn what_is_written_after_a_list_was_made_stays_when_the_list_is_followed() {
    let disk = VirtualDisk::new(1);
    let begin = (Epoch(5), bases(5, &map(&[P0]), &[P0]));
    let mut checkpoints = Checkpoints::new(begin.clone(), Epoch(3), Some(begin), None, Schedule::default());
    checkpoints.writing = Some(taken(8, &[P0]));
    checkpoints.recording.push_back(taken(7, &[P0]));
    let needed = checkpoints.needed(0, Some(Epoch(4)));
    for epoch in [1, 2, 3, 4, 5, 7, 8, 9] {
        write(&disk, epoch, &[P0, P1]);
    }
    let unfinished = disk.create(&unfinished_name(P0, Epoch(10)), 0).expect("a file");
    unfinished.write_at(0, b"begun").expect("written");
    prune(&disk, &needed).expect("removed");
    // 3 is where the logs begin, 4 is being fetched.
    assert_eq!(epochs(&disk), BTreeSet::from([3, 4, 5, 7, 8, 9, 10]));
    // By then the older ones are not needed, and the list speaks of newer ones.
    checkpoints.durable_base = Epoch(7);
    checkpoints.taken.extend(checkpoints.recording.pop_front());
    checkpoints.taken.push_back(taken(9, &[P0]));
    checkpoints.base = Epoch(7);
    let needed = checkpoints.needed(FETCH_TICKS, None);
    prune(&disk, &needed).expect("removed");
    assert_eq!(epochs(&disk), BTreeSet::from([7, 8, 9, 10]));
    checkpoints.writing = None;
    prune(&disk, &checkpoints.needed(FETCH_TICKS, None)).expect("removed");
    assert_eq!(epochs(&disk), BTreeSet::from([7, 9, 10]));
}

#[test]
fn a_checkpoint_that_is_fetched_outlives_those_that_nobody_fetches() {
    for cuts in [true, false] {
        let begin = (Epoch(2), bases(2, &map(&[P0]), &[P0]));
        let mut checkpoints = Checkpoints::new(begin, Epoch(1), None, None, Schedule::default());
        checkpoints.taken.push_front(taken(1, &[P0]));
        assert!(checkpoints.asked(P0, Epoch(2), 0));
        for epoch in 3..40 {
            checkpoints.taken.push_back(taken(epoch, &[P0]));
            if cuts {
                (checkpoints.base, checkpoints.durable_base) = (Epoch(epoch - 1), Epoch(epoch - 1));
            }
            let needed = checkpoints.needed(1, None);
            assert!(needed.epochs.contains(&Epoch(2)), "{epoch}");
            assert!(needed.epochs.len() <= TAKEN_MAX, "{epoch}: {needed:?}");
            checkpoints.check_invariants();
        }
        assert!(!checkpoints.asked(P0, Epoch(20), 1), "nobody fetched it");
        checkpoints.taken.push_back(taken(40, &[P0]));
        let needed = checkpoints.needed(FETCH_TICKS, None);
        assert!(!needed.epochs.contains(&Epoch(2)), "nobody fetches it any more");
    }
}
