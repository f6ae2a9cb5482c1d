//! Clients that go on at another site with a token.

use super::Group;
use super::remote::{chain, group, is_there, look, other_key};
use crate::Answer;
use crate::pcsi::{
    CommitStamp, Incarnation, Lacking, Message, Pcsi, Record, RemoteAccess, SessionToken, SiteEffects,
    SiteMap, TokenRefusal, VectorClock,
};
use std::collections::BTreeSet;
use txn::{Key, NodeId, PartitionId};

impl Group {
    fn token(&self, site: u16) -> SessionToken {
        let token = self.site(site).token().expect("the site is open");
        let sites = &self.options.sites;
        assert_eq!(SessionToken::decode(&token.encode(), sites).as_ref(), Some(&token), "it reads back");
        token
    }

    /// A client brings a token. Returns what it has heard of it by then.
    fn follow(&mut self, site: u16, token: &SessionToken) -> Option<Result<(), TokenRefusal>> {
        let (id, token) = (self.session(site), token.clone());
        let answers = self.run(site, |site, effects| site.follow_token(id, token, effects));
        assert_eq!(answers, []);
        self.followed.pop()
    }

    /// The outcome that the client hears within the time that it may wait.
    fn heard_in_time(&mut self) -> Option<Result<(), TokenRefusal>> {
        self.tick(self.options.vote_ticks_max + 1);
        self.followed.pop()
    }

    /// Whether a transaction that begins now sees a key.
    fn sees(&mut self, site: u16, key: &Key) -> bool {
        let id = self.session(site);
        self.begin(site, id);
        is_there(look(self, site, id, key))
    }
}

fn lacks(sites: impl IntoIterator<Item = u16>) -> Option<Result<(), TokenRefusal>> {
    lacking(Lacking { origins: sites.into_iter().map(NodeId).collect(), ..Lacking::default() })
}

fn lacking(lacking: Lacking) -> Option<Result<(), TokenRefusal>> {
    Some(Err(TokenRefusal::Lacks(lacking)))
}

#[test]
fn a_client_waits_until_the_site_has_what_its_token_counts() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 0);
    let before = group.token(0);
    group.lose(0, 1);
    group.committed(0, &[&key]);
    let token = group.token(0);
    assert_eq!(group.follow(1, &before), Some(Ok(())), "nothing had happened");
    assert_eq!(group.follow(1, &token), None);
    group.tick(10);
    assert_eq!(group.followed, []);
    group.reconnect();
    group.tick(2);
    assert_eq!(group.followed.pop(), Some(Ok(())));
    assert!(group.sees(1, &key));
    // The site that has given it needs not wait, and a client that has gone is told nothing.
    assert_eq!(group.follow(0, &token), Some(Ok(())));
    group.lose(0, 1);
    group.committed(0, &[&key]);
    let (id, token) = (group.session(1), group.token(0));
    group.run(1, |site, effects| site.follow_token(id, token, effects));
    group.run(1, |site, _| site.forget(id));
    group.reconnect();
    group.tick(4);
    assert_eq!(group.followed, []);
}

/// Site 0 has seen, in partition 0, what follows an update of partition 1, which it lacks. The token has
/// both.
#[test]
fn a_token_counts_what_its_site_depends_on_elsewhere() {
    let mut group = Group::new(3, &[&[0, 1], &[1, 2]]);
    let (near, far) = (group.key(0, 1), group.key(1, 1));
    group.lose(1, 2);
    group.committed(1, &[&far]);
    group.committed(1, &[&near]);
    group.tick(2);
    assert!(group.has(0, &near) && !group.has(2, &far));
    let token = group.token(0);
    assert_eq!(group.follow(2, &token), None);
    assert_eq!(group.heard_in_time(), lacks([1]));
    assert_eq!(group.follow(1, &token), Some(Ok(())));
    // A site without remote access follows in its updates what it cannot read, also after a restart.
    group.lose(0, 1);
    group.committed(2, &[&group.key(1, 2)]);
    let token = group.token(2);
    assert_eq!(group.follow(0, &token), None);
    group.tick(2);
    assert_eq!(group.followed.pop(), Some(Ok(())), "site 2 has confirmed it");
    group.start(0);
    let own = group.token(0);
    assert!(own.clocks[&PartitionId(1)].covers(&token.clocks[&PartitionId(1)]));
}

/// Site 2 writes a key of partition 1, which site 0 lacks. Site 1 has the partition, and not the update.
fn reads_behind_a_token(restarts: bool) -> (bool, Vec<Record>) {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    group.tick(2);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(2, &[&far]);
    // Without the token, the client goes back.
    let id = group.session(0);
    group.begin(0, id);
    assert!(!is_there(holder_answers(&mut group, id, &far)));
    let token = group.token(2);
    assert_eq!(group.follow(0, &token), None, "site 1 has not confirmed it");
    group.tick(3);
    assert_eq!(group.followed.pop(), Some(Ok(())), "site 2 has");
    let followed: Vec<Record> =
        group.logs[0].iter().filter(|record| matches!(record, Record::Followed { .. })).cloned().collect();
    if restarts {
        group.start(0);
    }
    let id = group.session(0);
    group.begin(0, id);
    let early = holder_answers(&mut group, id, &far);
    assert_eq!(early, None, "site 1 is behind");
    group.is_lost = |_| false;
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.extend(group.run(0, Pcsi::tick));
        [1, 2].into_iter().for_each(|site| drop(group.run(site, Pcsi::tick)));
    }
    (is_there(answers.pop()), followed)
}

/// The answer of site 1 to the transaction, if it answers.
fn holder_answers(group: &mut Group, id: txn::RequestId, key: &Key) -> Option<Answer> {
    group.lose(0, 2);
    let mut answer = look(group, 0, id, key);
    for _ in 0..6 {
        answer = answer.or(group.run(0, Pcsi::tick).pop());
    }
    group.lost.clear();
    answer
}

#[test]
fn reads_at_other_sites_are_behind_the_token_also_after_a_restart() {
    for restarts in [false, true] {
        let (is_there, followed) = reads_behind_a_token(restarts);
        assert!(is_there, "restarts: {restarts}");
        assert_eq!(followed.len(), 1);
    }
}

/// The token counts an update of site 0 that only site 0 has, which is fenced.
#[test]
fn a_token_of_an_incarnation_that_is_fenced_since_is_refused_at_once() {
    let mut group = Group::new(3, &[&[0, 1, 2]]);
    let key = group.key(0, 0);
    let blank = group.token(0);
    group.lose(0, 1);
    group.lose(0, 2);
    group.committed(0, &[&key]);
    let token = group.token(0);
    group.sites[0] = None;
    // The fence comes while one client waits already.
    assert_eq!(group.follow(1, &token), None);
    group.fence(2, 0);
    let refused = Some(Err(TokenRefusal::Fenced(NodeId(0))));
    assert_eq!(group.followed.pop(), refused);
    assert_eq!(group.follow(2, &token), refused);
    assert_eq!(group.follow(2, &blank), Some(Ok(())), "it counts nothing of site 0");
    // Tokens from behind the fence are taken, and the new incarnation takes those that count nothing of the
    // old one.
    let behind = group.token(1);
    assert_eq!(behind.incarnation_of(NodeId(0)), Incarnation(1));
    assert_eq!(group.follow(2, &behind), Some(Ok(())));
    group.lost.clear();
    group.lose_disk(0);
    group.tick(60);
    assert!(group.site(0).is_open());
    assert_eq!(group.follow(0, &token), refused);
    assert_eq!(group.follow(0, &behind), Some(Ok(())));
    group.committed(0, &[&key]);
    let token = group.token(0);
    group.tick(4);
    assert_eq!(group.follow(1, &token), Some(Ok(())));
}

/// Site 2 does not hear of a fence of site 0, and site 0 does not hear of it either.
#[test]
fn a_token_from_behind_a_fence_waits_for_the_fence_and_not_for_ever() {
    let mut group = Group::new(4, &[&[0, 1, 2, 3]]);
    let key = group.key(0, 1);
    group.lose(0, 1);
    group.lose(0, 2);
    group.lose(0, 3);
    group.is_lost = |message| matches!(message, Message::Fencing(super::Fencing::Decided { .. }));
    group.fence(1, 0);
    group.lose(1, 2);
    group.lose(1, 3);
    group.lose(2, 3);
    group.committed(1, &[&key]);
    let token = group.token(1);
    let unheard = Some(Err(TokenRefusal::UnheardFences(BTreeSet::from([NodeId(0)]))));
    let here = Some(Err(TokenRefusal::FencedHere));
    assert_eq!(group.follow(0, &token), here, "the site has not heard of its fence");
    assert_eq!(group.follow(2, &token), None);
    let view = group.site(2).view(PartitionId(0)).cloned();
    assert_eq!(group.heard_in_time(), unheard);
    assert_eq!(group.site(2).view(PartitionId(0)).cloned(), view, "its clocks are as before");
    assert_eq!(group.follow(2, &token), None);
    group.is_lost = |_| false;
    group.reconnect();
    group.lose(0, 2);
    assert_eq!(group.heard_in_time(), Some(Ok(())));
}

/// Site 0 loses power, and an update that a client of it has seen.
#[test]
fn a_token_with_numbers_that_its_site_does_not_have_is_refused_at_once_there() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 0);
    let durable = group.logs[0].clone();
    group.committed(0, &[&key]);
    let token = group.token(0);
    group.logs[0] = durable;
    group.start(0);
    assert_eq!(group.follow(0, &token), Some(Err(TokenRefusal::LostHere)));
    assert_eq!(group.follow(1, &token), None);
    assert_eq!(group.heard_in_time(), lacks([0]));
    assert_eq!(group.site(1).waits_for(), None);
    // The site gives the number out again: nobody else has followed the one that was lost.
    group.committed(0, &[&key]);
    group.tick(4);
    assert!(group.has(1, &key));
}

#[test]
fn a_site_takes_a_bounded_number_of_tokens_and_none_while_it_is_closed() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 0);
    group.lose(0, 1);
    group.committed(0, &[&key]);
    let token = group.token(0);
    for _ in 0..group.options.open_max {
        assert_eq!(group.follow(1, &token), None);
    }
    let (id, more) = (group.session(1), token.clone());
    let answers = group.run(1, |site, effects| site.follow_token(id, more, effects));
    assert_eq!(answers, [Answer::Unavailable]);
    group.restart(1);
    assert_eq!(group.site(1).token(), None);
    let answers = group.run(1, |site, effects| site.follow_token(id, token, effects));
    assert_eq!(answers, [Answer::Unavailable]);
}

/// A holder has heard of the fence of site 2 before site 0 has, and has answered a read of site 0 with a view
/// that counts a number of the next incarnation.
#[test]
fn a_site_that_has_read_behind_a_fence_gives_no_token_before_it_hears_of_the_fence() {
    let mut group = chain(RemoteAccess::Grants);
    let mut view = VectorClock::default();
    view.count(CommitStamp { site: NodeId(2), sequence: Incarnation(1).base() + 1 });
    group.run(0, |site, _| assert!(site.follow(&[(PartitionId(1), view)].into())));
    assert_eq!(group.site(0).token(), None);
    group.fence(1, 2);
    group.tick(4);
    assert_eq!(group.token(0).incarnation_of(NodeId(2)), Incarnation(1));
}

#[test]
fn bytes_that_no_site_encodes_are_no_token() {
    let mut group = group(3, &[&[0, 1], &[1, 2]], RemoteAccess::Grants);
    let (near, far) = (group.key(0, 0), group.key(1, 2));
    for _ in 0..3 {
        group.committed(0, &[&near]);
        group.committed(0, &[&far]);
        group.tick(4);
    }
    let sites = group.options.sites.clone();
    let token = group.token(1);
    assert!(token.clocks.values().any(|clock| clock.lasts().any(|last| last.is_granted())));
    let bytes = token.encode();
    for end in 0..bytes.len() {
        assert_eq!(SessionToken::decode(&bytes[..end], &sites), None, "cut at {end}");
    }
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << bit;
            if let Some(read) = SessionToken::decode(&changed, &sites) {
                assert_eq!(read.encode(), changed, "byte {place}, bit {bit}");
            }
        }
    }
    let with = |change: &dyn Fn(&mut SessionToken)| {
        let mut changed = token.clone();
        change(&mut changed);
        SessionToken::decode(&changed.encode(), &sites)
    };
    let count = |token: &mut SessionToken, of: u16, site: u16, sequence| {
        let clock = token.clocks.entry(PartitionId(of)).or_default();
        clock.count(crate::pcsi::CommitStamp { site: NodeId(site), sequence });
    };
    let base = Incarnation(1).base();
    assert!(with(&|token| count(token, 0, 0, 9)).is_some(), "nobody can tell by the bytes");
    assert_eq!(with(&|token| count(token, 0, 2, 1)), None, "site 2 lacks the partition");
    assert_eq!(with(&|token| count(token, 0, 9, 1)), None, "there is no such site");
    assert_eq!(with(&|token| count(token, 7, 0, 1)), None, "there is no such partition");
    assert_eq!(with(&|token| count(token, 0, 0, base)), None, "the token knows of no fence");
    assert_eq!(with(&|token| token.incarnations.extend([(NodeId(0), Incarnation(0))])), None);
    assert_eq!(with(&|token| token.incarnations.extend([(NodeId(9), Incarnation(1))])), None);
    let other = SiteMap::new(vec![vec![NodeId(0)]]).expect("a partition");
    assert_eq!(SessionToken::decode(&bytes, &other), None, "a smaller system");
}

/// Site 0 writes a key of partition 1 with a number of site 2, and loses its disk. Site 2 fills the number.
#[test]
fn a_token_with_granted_numbers_is_refused_after_a_fence_of_any_site() {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    let blank = group.token(0);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&far]);
    let token = group.token(0);
    group.is_lost = |_| false;
    group.lose_disk(0);
    group.tick(60);
    assert!(group.is_open(0) && !group.has(1, &far), "the write is lost");
    let view = group.site(1).view(PartitionId(1)).expect("it has the partition");
    assert!(view.covers(&token.clocks[&PartitionId(1)]), "and its number is counted");
    for site in [1, 2] {
        assert_eq!(group.follow(site, &token), Some(Err(TokenRefusal::Fenced(NodeId(0)))));
        assert_eq!(group.follow(site, &blank), Some(Ok(())), "it counts nothing");
    }
}

/// The same, but site 1 has only promised the fence when it gets the update that fills the number.
#[test]
fn a_token_with_granted_numbers_waits_while_a_fence_is_under_way() {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&far]);
    let token = group.token(0);
    group.sites[0] = None;
    group.is_lost = |message| matches!(message, Message::Fencing(super::Fencing::Decided { .. }));
    group.fence(2, 0);
    group.tick(4);
    let view = group.site(1).view(PartitionId(1)).expect("it has the partition");
    assert!(view.covers(&token.clocks[&PartitionId(1)]) && !group.has(1, &far));
    assert_eq!(group.follow(1, &token), None);
    group.is_lost = |_| false;
    assert_eq!(group.heard_in_time(), Some(Err(TokenRefusal::Fenced(NodeId(0)))));
}

/// Sites 0 and 3 lack partition 1. Site 0 writes there, and is away before any other site has the update. A
/// client goes on at site 3 with a token of it. Returns the client's outcome, and whether others can still
/// read partition 1 at site 3, and sites 1 and 2 apply what site 3 writes.
fn follow_what_no_holder_has() -> (Option<Result<(), TokenRefusal>>, bool, bool) {
    let mut group = group(4, &[&[0], &[1, 2], &[3]], RemoteAccess::Grants);
    let (far, own) = (group.key(1, 2), group.key(1, 1));
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&far]);
    let token = group.token(0);
    group.is_lost = |_| false;
    group.sites[0] = None;
    let outcome = group.follow(3, &token).or_else(|| group.heard_in_time());
    let id = group.session(3);
    group.begin(3, id);
    let is_read = matches!(look(&mut group, 3, id, &own), Some(Answer::Value(_)));
    let id = group.session(3);
    group.write(3, id, &[&own], Some("new"));
    group.tick(60);
    let is_applied = group.has(1, &own) && group.has(2, &own);
    // Site 0 is back.
    group.start(0);
    group.reconnect();
    group.tick(10);
    assert!(group.has(1, &far));
    assert_eq!(group.follow(3, &token), Some(Ok(())), "the first holder that is asked confirms it");
    assert!(group.sees(3, &far));
    (outcome, is_read, is_applied)
}

#[test]
fn a_site_follows_nothing_elsewhere_that_no_holder_has_confirmed() {
    let partitions = BTreeSet::from([PartitionId(1)]);
    let refused = lacking(Lacking { partitions, ..Lacking::default() });
    assert_eq!(follow_what_no_holder_has(), (refused, true, true));
}

/// Clients with different tokens wait at site 0 for partition 1.
#[test]
fn a_site_asks_one_holder_a_period_however_many_clients_wait() {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    group.options.propagation_ticks = 3;
    (0..3).for_each(|site| group.start(site));
    group.tick(4);
    group.is_lost = |message| matches!(message, Message::Updates { .. } | Message::View { .. });
    let asks = |effects: &SiteEffects| {
        let asked =
            effects.messages.iter().filter(|(_, letter)| matches!(letter.message, Message::AskView(_)));
        asked.map(|(to, _)| to.0).collect::<Vec<_>>()
    };
    let mut at_once = Vec::new();
    for _ in 0..5 {
        group.committed(2, &[&far]);
        let (id, token) = (group.session(0), group.token(2));
        let mut effects = SiteEffects::default();
        group.sites[0].as_mut().expect("it runs").follow_token(id, token, &mut effects);
        at_once.push(asks(&effects));
    }
    assert_eq!(at_once, [vec![1], vec![], vec![], vec![], vec![]]);
    let mut later = Vec::new();
    for _ in 0..12 {
        let mut effects = SiteEffects::default();
        group.sites[0].as_mut().expect("it runs").tick(&mut effects);
        later.extend(asks(&effects));
    }
    assert!(later == [1, 2, 1, 2] || later == [2, 1, 2, 1], "{later:?}");
}

/// The numbers 1 and 2 of site 2 are those of sites 0 and 3. Site 1 has the second one only, and a site that
/// tells whose numbers it lacks by the last one of each run would name nobody.
#[test]
fn a_refusal_names_the_granter_of_a_run_that_has_a_gap() {
    let mut group = group(4, &[&[0], &[1, 2], &[3]], RemoteAccess::Grants);
    let (far, near) = (group.key(1, 2), other_key(&group, 1, 2));
    group.committed(0, &[&far]);
    group.lose(0, 1);
    group.lose(0, 2);
    let id = group.session(3);
    group.begin(3, id);
    assert!(!is_there(look(&mut group, 3, id, &near)));
    assert_eq!(group.commit(3, id, &[&near, &group.key(2, 3)], Some("new")), [Answer::Committed]);
    group.tick(4);
    assert!(group.has(1, &near) && !group.has(1, &far));
    let mut token = group.token(0);
    let other = group.token(1).clocks[&PartitionId(1)].clone();
    token.clocks.entry(PartitionId(1)).or_default().merge(&other);
    assert_eq!(group.follow(1, &token), None);
    let names = |heard: Option<Result<(), TokenRefusal>>| match heard {
        Some(Err(TokenRefusal::Lacks(lacking))) => lacking.granters,
        other => panic!("{other:?}"),
    };
    assert_eq!(names(group.heard_in_time()), BTreeSet::from([NodeId(2)]));
}

/// Site 2 loses power, and a number that it has granted to an update of site 0.
#[test]
fn a_token_with_a_granted_number_that_its_granter_does_not_know_is_refused_at_once_there() {
    let mut group = chain(RemoteAccess::Grants);
    let far = group.key(1, 2);
    let durable = group.logs[2].clone();
    group.is_lost = |message| matches!(message, Message::Updates { .. });
    group.committed(0, &[&far]);
    let token = group.token(0);
    group.logs[2] = durable;
    group.start(2);
    assert_eq!(group.follow(2, &token), Some(Err(TokenRefusal::LostHere)));
}

/// Each letter of other sites would have the site look at all that wait.
#[test]
fn a_site_looks_at_the_clients_that_wait_once_a_period() {
    let mut group = Group::new(2, &[&[0, 1]]);
    let key = group.key(0, 0);
    group.options.propagation_ticks = 5;
    (0..2).for_each(|site| group.start(site));
    group.run(1, Pcsi::tick);
    group.committed(0, &[&key]);
    let token = group.token(0);
    assert_eq!(group.follow(1, &token), None);
    for _ in 0..5 {
        group.run(0, Pcsi::tick);
    }
    assert!(group.has(1, &key) && group.followed.is_empty(), "it waits for the period's end");
    for _ in 0..4 {
        group.run(1, Pcsi::tick);
    }
    assert_eq!(group.followed.pop(), Some(Ok(())));
}
