//! Pieces that come, or don't. Scripts in `scripts/transfer/`.

use super::*;
use crate::cluster::fixtures::{P0, P1, P2, base, bases, map};
use crate::cluster::script::{Scripted, node, number, partition, run};

fn piece(partition: PartitionId, epoch: u64, offset: u64) -> Piece {
    Piece { partition, epoch: Epoch(epoch), offset }
}

/// A node that keeps some partitions, of files that are 10 bytes long.
#[derive(Default)]
struct Part {
    transfer: Transfer,
    own: Own,
    now_tick: u64,
    live: BTreeSet<NodeId>,
    having: BTreeMap<PartitionId, Vec<NodeId>>,
}

fn nodes(words: &[&str]) -> Vec<NodeId> {
    words.iter().map(|word| node(word)).collect()
}

fn parts(words: &[&str]) -> Vec<PartitionId> {
    words.iter().map(|word| partition(word)).collect()
}

fn epoch(word: &str) -> Epoch {
    Epoch(number(word))
}

impl Part {
    fn told(&self, piece: Piece) -> String {
        format!("p{} of epoch {} from byte {}", piece.partition.0, piece.epoch.0, piece.offset)
    }

    fn begun(&self, begin: Option<Begin>) -> Vec<String> {
        let told = |begin: Begin| format!("begin epoch {}, as n{} says", begin.epoch.0, begin.source.0);
        begin.map(told).into_iter().collect()
    }

    fn next(&mut self) -> Vec<String> {
        let (live, having) = (&self.live, &self.having);
        let able = |partition, source: NodeId| {
            let known = having.get(&partition).cloned().unwrap_or_default();
            let all = [source].into_iter().chain(known.into_iter().filter(|&node| node != source));
            all.filter(|node| live.contains(node)).collect()
        };
        let wish = self.transfer.next(self.own, self.now_tick, |node| live.contains(&node), able);
        match wish {
            None => Vec::new(),
            Some(Wish::Ask(from, piece)) => vec![format!("ask n{} for {}", from.0, self.told(piece))],
            Some(Wish::Begin(begin)) => self.begun(Some(begin)),
            Some(Wish::Install(epoch)) => vec![format!("install epoch {}", epoch.0)],
        }
    }

    /// What is written of a piece of a file of 10 bytes.
    fn came(&mut self, from: NodeId, piece: Piece, bytes: u64) -> Vec<String> {
        let map = map(&[P0, P1, P2]);
        let read = || {
            let mut encoded = Vec::new();
            base(piece.epoch.0, &map).encode(&mut encoded);
            read_base(piece.epoch, &encoded, &map)
        };
        let bytes = vec![0; bytes as usize].into();
        match self.transfer.came(from, piece, 10, bytes, self.now_tick, read) {
            Err(bad) => vec![format!("bad: {bad}")],
            Ok(None) => Vec::new(),
            Ok(Some((piece, bytes, whole))) => {
                let end = if whole.is_some() { ", the last" } else { "" };
                vec![format!("write {} bytes of {}{end}", bytes.len(), self.told(piece))]
            }
        }
    }
}

impl Scripted for Part {
    fn input(&mut self, words: &[&str]) -> Vec<String> {
        let piece =
            |of, at, offset| Piece { partition: partition(of), epoch: epoch(at), offset: number(offset) };
        let wishes = match *words {
            ["tick", tick] => {
                self.now_tick = number(tick);
                self.next()
            }
            ["live", ref live @ ..] => {
                self.live = nodes(live).into_iter().collect();
                Vec::new()
            }
            ["kept", of, "by", ref by @ ..] => {
                self.having.insert(partition(of), nodes(by));
                Vec::new()
            }
            ["own", "reached", at] => {
                self.own = Own { reached: epoch(at), keeps_all: true, ..self.own };
                Vec::new()
            }
            ["own", "newest", at] => {
                self.own.newest = epoch(at);
                Vec::new()
            }
            ["own", "unkept", at] => {
                self.own.unkept = Some(epoch(at));
                Vec::new()
            }
            ["behind", from, at] => {
                let begin = self.transfer.behind(node(from), epoch(at), self.own.reached, self.now_tick);
                self.begun(begin)
            }
            ["begin", at, "from", from, ref wanted @ ..] => {
                self.transfer.begin(Begin::new(epoch(at), node(from)), parts(wanted));
                self.next()
            }
            ["newest", from, at] => {
                let begin = self.transfer.newest_is(node(from), epoch(at), self.own);
                self.begun(begin)
            }
            ["came", from, of, at, offset, bytes] => {
                self.came(node(from), piece(of, at, offset), number(bytes))
            }
            ["written", of, at, offset, bytes] => {
                let (piece, bytes) = (piece(of, at, offset), number(bytes));
                self.transfer.written(piece, bytes, piece.offset + bytes == 10);
                self.next()
            }
            ["unwritten", of, at, offset] => {
                self.transfer.unwritten(piece(of, at, offset));
                self.next()
            }
            ["spoilt", of, at, offset] => {
                let from = self.transfer.spoilt(piece(of, at, offset));
                let mut wishes: Vec<String> =
                    from.map(|from| format!("sever n{}", from.0)).into_iter().collect();
                wishes.extend(self.next());
                wishes
            }
            ["ready", ref needed @ ..] => vec![match self.transfer.ready(self.own, parts(needed)) {
                Ready::No => "not now".to_owned(),
                Ready::Begin(begin) => self.begun(Some(begin)).remove(0),
                Ready::More => "more is needed".to_owned(),
                Ready::Lacks(of) => format!("p{} came without a base", of.0),
                Ready::Bases(bases) => {
                    format!("bases of {:?}", bases.keys().map(|of| of.0).collect::<Vec<_>>())
                }
            }],
            ["end"] => {
                self.transfer.end();
                self.next()
            }
            _ => panic!("no input: {words:?}"),
        };
        self.transfer.check_invariants();
        wishes
    }
}

#[test]
fn scripts_of_transfer_come_out_as_they_are_written() {
    run::<Part>("transfer");
}

#[test]
fn pieces_are_asked_for_in_turn_and_again_when_they_do_not_come() {
    let both = vec![PartitionId(0), PartitionId(3)];
    let mut install = Install::new(Begin::new(Epoch(7), NodeId(1)), both);
    let piece = |partition, offset| Piece { partition: PartitionId(partition), epoch: Epoch(7), offset };
    assert_eq!(install.next(10), Some(piece(0, 0)));
    assert_eq!(install.next(11), None);
    assert_eq!(install.next(14), Some(piece(0, 0)), "asked again");
    assert!(!install.takes(piece(0, 5), 14) && !install.takes(piece(3, 0), 14));
    assert!(install.takes(piece(0, 0), 14));
    assert!(!install.takes(piece(0, 0), 14), "it came twice");
    assert_eq!(install.next(30), None, "it is being written");
    install.written(piece(0, 0), 5, false);
    assert_eq!(install.next(31), Some(piece(0, 5)));
    assert!(install.takes(piece(0, 5), 14));
    install.written(piece(0, 5), 2, true);
    assert_eq!(install.next(32), Some(piece(3, 0)));
    assert!(!install.is_complete() && install.takes(piece(3, 0), 14));
    install.written(piece(3, 0), 0, true);
    assert!(install.is_complete());
}

#[test]
fn only_the_piece_that_is_waited_for_counts_when_it_is_written() {
    let mut install = Install::new(Begin::new(Epoch(7), NodeId(1)), vec![P0, P1]);
    install.written(piece(P0, 7, 0), 5, true);
    assert_eq!(install.next(1), Some(piece(P0, 7, 0)));
    assert!(install.takes(piece(P0, 7, 0), 1));
    for other in [piece(P0, 6, 0), piece(P0, 7, 5), piece(P1, 7, 0)] {
        install.written(other, 5, true);
        assert_eq!(install.next(100), None, "it is being written");
    }
    // A newer checkpoint is fetched instead: it waits for the disk, and begins at the beginning.
    let mut newer = Install::new(Begin::new(Epoch(9), NodeId(1)), vec![P0]).in_place_of(&install);
    assert_eq!(newer.next(2), None, "the disk is busy");
    assert!(!newer.takes(piece(P0, 9, 0), 2));
    newer.written(piece(P0, 7, 0), 5, true);
    assert!(!newer.is_complete());
    assert_eq!(newer.next(3), Some(piece(P0, 9, 0)));
    // The file is begun anew, from another node, while a piece of it is written.
    assert!(newer.takes(piece(P0, 9, 0), 3));
    newer.from = Some(NodeId(1));
    newer.refused(Epoch(8));
    newer.written(piece(P0, 9, 0), 5, true);
    assert!(!newer.is_complete());
    assert_eq!(newer.next(100), Some(piece(P0, 9, 0)));
    assert!(newer.takes(piece(P0, 9, 0), 100));
    newer.written(piece(P0, 9, 0), 5, true);
    assert!(newer.is_complete());
}

#[test]
fn bases_that_do_not_cover_all_that_was_wanted_are_refused() {
    let map = map(&[P0, P1]);
    let mut install = Install::new(Begin::new(Epoch(7), NodeId(1)), vec![P0, P1]);
    let read = || {
        let base = base(7, &map);
        let state = BaseState::decode(&base.state).expect("a state");
        (base, state)
    };
    install.bases.insert(P0, read());
    assert_eq!(install.read_bases(), Err(P1));
    install.bases.insert(P1, read());
    assert_eq!(install.read_bases(), Ok(bases(7, &map, &[P0, P1])));
    install.want([P1, P2]);
    assert_eq!(install.wanted, [P0, P1, P2]);
    assert_eq!(install.read_bases(), Err(P2));
}

/// How often each of 20 pieces is asked for where the source's link needs `piece_ticks` for each.
fn questions(piece_ticks: u64, loses: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut install = Install::new(Begin::new(Epoch(7), NodeId(1)), vec![PartitionId(0)]);
    let (mut link_free_tick, mut questions) = (0, vec![0; 20]);
    let mut answers: Vec<(u64, Piece)> = Vec::new();
    for tick in 0..100_000 {
        while let Some(place) = answers.iter().position(|&(due, _)| due <= tick) {
            let (_, piece) = answers.remove(place);
            if install.takes(piece, tick) {
                install.written(piece, 1, piece.offset == 19);
            }
        }
        if install.is_complete() {
            return questions;
        }
        if let Some(piece) = install.next(tick) {
            questions[piece.offset as usize] += 1;
            if !loses(questions[piece.offset as usize]) {
                link_free_tick = tick.max(link_free_tick) + piece_ticks;
                answers.push((link_free_tick, piece));
            }
        }
    }
    panic!("not even a tick a thousand times over is enough: {questions:?}");
}

#[test]
fn a_slow_link_is_not_filled_with_pieces_that_were_asked_for_too_early() {
    for piece_ticks in [0, 1, 3, 4, 7, 20, 100] {
        let questions = questions(piece_ticks, |_| false);
        let wasted = questions.iter().sum::<u64>() - 20;
        assert!(wasted <= 8, "{piece_ticks}: {questions:?}");
        assert!(questions[10..].iter().all(|&asked| asked == 1), "{piece_ticks}: {questions:?}");
    }
}

#[test]
fn a_link_that_loses_every_first_answer_still_brings_everything() {
    assert_eq!(questions(1, |asked| asked == 1), vec![2; 20]);
}
