//! Installing and undoing a transaction's versions (Algorithm 2, lines 20-36).

use super::Mutant;
use super::keystate::KeyState;
use super::shared::Shared;
use super::slot::Write;
use super::status::Ticket;
use crate::conflicts::Cause;
use store::sync::atomic::Ordering;
use store::{RecordCell, Version, digest};
use txn::{Position, Request, Space};

/// [`Mutant::LoseWrite`] loses the writes at every position that is a multiple of this.
const LOST_EVERY: u64 = 23;

/// A lock was preempted: the transaction can't commit.
#[derive(Debug)]
pub(super) struct Preempted;

/// Changes a record's versions at `me`, and keeps the count of live entries right: what the change means for
/// `me`'s contribution, and for that of the next later version, whose base it is.
fn counting_live(
    shared: &Shared,
    cell: &mut RecordCell<KeyState>,
    me: Position,
    cleared: bool,
    change: impl FnOnce(&mut RecordCell<KeyState>),
) {
    let clears = shared.partition.clears();
    let above = cell.position_above(me);
    let below = !cleared && cell.live(me.prev(), clears);
    let contribution = |cell: &RecordCell<KeyState>| {
        let present = cell.position_at(me) == me;
        if present { i64::from(cell.live(me, clears)) - i64::from(below) } else { 0 }
    };
    let base = |cell: &RecordCell<KeyState>| above.is_some_and(|above| cell.live(above.prev(), clears));
    let before = (contribution(cell), base(cell));
    change(cell);
    let after = (contribution(cell), base(cell));
    if after.0 != before.0 {
        shared.slot(me).live.fetch_add(after.0 - before.0, Ordering::Relaxed);
    }
    if let Some(above) = above
        && after.1 != before.1
        && !shared.has(Mutant::MiscountLive)
    {
        shared.slot(above).live.fetch_add(i64::from(before.1) - i64::from(after.1), Ordering::Relaxed);
    }
}

/// Lets go of a record's lock, if `me` holds it.
fn release(shared: &Shared, cell: &mut RecordCell<KeyState>, me: Position) {
    if cell.meta.held_by(me) {
        cell.meta.release(shared.head(), |waiter| shared.wake(waiter));
    }
}

/// Installs one write and lets go of its lock: Algorithm 2's `Put`. Gives what the write adds to the state
/// digest.
pub(super) fn install(
    shared: &Shared,
    (me, request): (Position, Option<&Request>),
    write: &mut Write,
    cleared: bool,
) -> Result<u64, Preempted> {
    let is_lost = shared.has(Mutant::LoseWrite) && me.0.is_multiple_of(LOST_EVERY);
    let term = match write.written && !is_lost {
        true => digest::of_write(&write.record.key(), me, write.entry.as_ref()),
        false => 0,
    };
    let head = shared.head();
    let user = write.record.space() == Space::User;
    let Write { record, entry, locked, reserved, written, installed, superseding } = write;
    shared.partition.with_record(record, |record, cell| {
        if !*written {
            // Announced, or kept from the last incarnation, and not written after all.
            release(shared, cell, me);
            return Ok(0);
        }
        if *locked && !*reserved && !cell.meta.held_by(me) {
            return Err(Preempted);
        }
        let watermark =
            if shared.has(Mutant::CollectTooEarly) { me } else { shared.partition.snapshots().watermark() };
        let version = Version { position: me, entry: entry.take() };
        if (version.entry.is_some() || !shared.has(Mutant::ForgetTombstone)) && !is_lost {
            if user {
                counting_live(shared, cell, me, cleared, |cell| cell.supersede(version, watermark));
            } else {
                cell.supersede(version, watermark);
            }
            *installed = true;
        }
        *superseding = cell.len() > 1;
        if !shared.has(Mutant::SkipDoomOnInstall) {
            let above = cell.position_above(me);
            cell.meta.doom_readers(head, me, above, |reader| {
                shared.doom_over(|| record.key(), Cause::Overwritten, (me, request), reader);
            });
        }
        release(shared, cell, me);
        Ok(term)
    })
}

/// Undoes one write: Algorithm 2's `UnlockOrRemove`. `next` is the ticket of the next incarnation, which
/// keeps the lock (reserved) if it can; `None` if there will be none. (One that has cleared has said before
/// that it has not.)
pub(super) fn undo(
    shared: &Shared,
    (me, request): (Position, Option<&Request>),
    next: Option<Ticket>,
    write: &mut Write,
) {
    let user = write.record.space() == Space::User;
    let held = write.installed || write.locked;
    let Write { record, entry, locked, written, installed, superseding, reserved } = write;
    let keep_version = *installed
        && (shared.has(Mutant::KeepVersionsOnUndo)
            || next.is_none() && shared.has(Mutant::RetractKeepsVersions));
    let mut kept = false;
    if held {
        shared.partition.with_record(record, |record, cell| {
            if *installed && !keep_version {
                if user {
                    counting_live(shared, cell, me, false, |cell| {
                        cell.remove(me);
                    });
                } else {
                    cell.remove(me);
                }
                if !shared.has(Mutant::SkipCascadeOnRemove) {
                    let above = cell.position_above(me);
                    cell.meta.doom_readers(shared.head(), me, above, |reader| {
                        shared.doom_over(|| record.key(), Cause::Withdrawn, (me, request), reader);
                    });
                }
            }
            match next {
                Some(next) if *installed || cell.meta.held_by(me) => {
                    let holder = cell.meta.holder();
                    kept = holder.is_none() || holder.position() >= me;
                    if kept {
                        if !holder.is_none() && holder.position() != me && !holder.is_reserved() {
                            shared.doom_over(|| record.key(), Cause::Preempted, (me, request), holder);
                        }
                        cell.meta.lock(next.reserved(), shared.head());
                    }
                }
                Some(_) => {}
                None => release(shared, cell, me),
            }
        });
    }
    *entry = None;
    *written = false;
    *installed = false;
    *superseding = false;
    *locked = kept;
    *reserved = kept;
}
