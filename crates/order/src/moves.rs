//! Slots that move from one partition to another.
//!
//! [`Control::MoveSlots`](crate::Control::MoveSlots) changes the map behind the epoch that carries it. What
//! has to happen with it are two things, which the merge puts into the order itself, so that no log needs
//! them:
//!
//! - **The records move with the slots**, in a transaction over the two partitions that stands behind all
//!   others of that epoch: the one gives ([`MoveSlots`] deletes there), the other one takes (it writes what
//!   the first has read). So everything that holds for transactions over several partitions holds for it: it
//!   is executed speculatively, taken back when its epoch is, replayed after a crash, and told by a replica
//!   in another zone if the nearest one is down.
//! - **What was routed by older slots is not executed** in later epochs, but ends with [`Stop::Undeclared`]
//!   at all of its partitions ([`misrouted`]). Whoever had submitted it submits it again, behind what came
//!   before it and before what came after it. So what is executed finds its keys where it looks for them, and
//!   no connection's request overtakes another one.
//!
//! What the system's space has of a slot (the replies that ORDO.IDEMPOTENT keeps) is copied: from here on it
//! is looked for at the taking partition.

use std::sync::Arc;
use txn::codec::{Reader, put_varint};
use txn::{
    Args, Call, Epoch, Footprint, PartitionId, PartitionRoute, Partitions, Procedure, ProcedureFuture, Reply,
    Request, RequestId, ScanRange, SessionId, SlotRange, Slots, Space, Stop, Tx, slots,
};

/// A change of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMove {
    /// Which slots.
    pub slots: SlotRange,
    /// Whose they were.
    pub from: PartitionId,
    /// Whose they are.
    pub to: PartitionId,
    /// The version of the map that it makes.
    pub version: u32,
}

impl SlotMove {
    /// Whether a partition gives or takes.
    pub fn involves(&self, partition: PartitionId) -> bool {
        partition == self.from || partition == self.to
    }

    fn args(&self) -> Args {
        let SlotMove { slots: SlotRange { first, last }, from, to, version } = *self;
        let mut bytes = Vec::new();
        for number in [first, last, from.0, to.0] {
            put_varint(&mut bytes, u64::from(number));
        }
        put_varint(&mut bytes, u64::from(version));
        Args::one(bytes.as_slice())
    }

    /// The change whose records a request moves, if it does that.
    pub fn of(request: &Request) -> Option<SlotMove> {
        if request.procedure.name() != MOVE_SLOTS {
            return None;
        }
        let mut reader = Reader::new(request.args.first()?.as_bytes());
        let mut number = || u16::try_from(reader.varint()?).ok();
        let (first, last) = (number()?, number()?);
        let (from, to) = (PartitionId(number()?), PartitionId(number()?));
        Some(SlotMove {
            slots: SlotRange { first, last },
            from,
            to,
            version: u32::try_from(reader.varint()?).ok()?,
        })
    }

    /// The request that moves the records, as one of the two partitions executes it: with the slots as they
    /// were if it gives, and as they are if it takes.
    pub(crate) fn request(&self, at: PartitionId, epoch: Epoch, slots: Slots) -> Arc<Request> {
        let mut partitions = Partitions::from_slice(&[self.from, self.to]);
        partitions.sort_unstable();
        Arc::new(Request {
            id: RequestId { session: SessionId::INTERNAL, sequence: epoch.0, attempt: 0 },
            slots_version: self.version,
            procedure: Arc::new(MoveSlots { change: *self, gives: at == self.from }),
            args: self.args(),
            footprint: Footprint::unknown(),
            route: PartitionRoute { home: partitions[0], partitions, slots },
            elsewhere: false,
        })
    }
}

/// The procedure that moves the records of some slots. Made by the merge; no log names it.
#[derive(Clone, Copy, Debug)]
pub struct MoveSlots {
    change: SlotMove,
    /// Whether it runs at the partition that gives them.
    gives: bool,
}

/// The procedure's name.
pub const MOVE_SLOTS: &str = "ordo.move_slots";

impl MoveSlots {
    async fn go(self, mut tx: Tx) -> Result<Reply, Stop> {
        let SlotMove { slots, from, version, .. } = self.change;
        let users = ScanRange::of_slots(Space::User, slots);
        let moved = tx.scan_at(from, users).await?;
        let system = ScanRange::of_slots(Space::System, slots);
        let copied = tx.scan_at(from, system).await?;
        let version_key = slots::version_key();
        if self.gives {
            for (key, _) in moved.entries {
                tx.delete(&key).await?;
            }
        } else {
            let now_ms = tx.now_ms();
            let copied = copied.entries.into_iter();
            // What has expired may be older than what the taker has.
            let copied = copied.filter(|(_, entry)| !entry.expired(now_ms));
            for (key, entry) in moved.entries.into_iter().chain(copied) {
                tx.put_entry(&key, entry).await?;
            }
        }
        tx.put(&version_key, slots::version_value(version)).await?;
        Ok(Reply::OK)
    }
}

impl Procedure for MoveSlots {
    fn name(&self) -> &str {
        MOVE_SLOTS
    }
    fn run(&self, tx: Tx, _: Call) -> ProcedureFuture {
        Box::pin(self.go(tx))
    }
}

/// What stands in the order for a request that was routed by older slots.
struct Misrouted;

const MISROUTED: &str = "ordo.misrouted";

/// Whether a request of the order is not executed, because it was routed by older slots.
pub fn is_misrouted(request: &Request) -> bool {
    request.procedure.name() == MISROUTED
}

impl Procedure for Misrouted {
    fn name(&self) -> &str {
        MISROUTED
    }
    fn footprint(&self, _: &Args) -> Footprint {
        Footprint::of_keys(Vec::new(), Vec::new())
    }
    fn run(&self, _: Tx, _: Call) -> ProcedureFuture {
        Box::pin(std::future::ready(Err(Stop::Undeclared(None))))
    }
}

/// A request that was routed by older slots, as the order has it: at its place, and without effect.
pub(crate) fn misrouted(request: &Request) -> Arc<Request> {
    Arc::new(Request {
        id: request.id,
        slots_version: request.slots_version,
        footprint: Misrouted.footprint(&Args::new()),
        procedure: Arc::new(Misrouted),
        args: Args::new(),
        route: request.route.clone(),
        elsewhere: false,
    })
}
