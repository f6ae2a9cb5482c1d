//! What a node gets of groups of which it keeps no replica, and who executes for its clients there: dispatch
//! inside a zone.
//!
//! A zone has one replica of every partition, spread over its nodes, and the order is made of the batches of
//! all groups. So a node follows each group that it has no part in through a node that has one: its neighbour
//! in the zone, or, while that is gone, one of another zone. The one that is followed sends each batch as
//! soon as its own log has it, cut down to what the follower executes, and how far the group has agreed. What
//! is told before it is agreed may be replaced later, exactly as in a log; the merge treats both alike.
//!
//! Whoever is followed also answers: it sends the follower the outcomes of its clients' requests that were
//! executed here. A follower that comes anew names the requests that it waits for and gets their outcomes
//! again. Whoever is followed may have stopped executing, or begun behind a checkpoint that has them: a
//! follower that waits for long comes to the other replicas, too, less and less often. So an outcome is lost
//! only if all that its replicas remembered is gone; the client is then told that nobody knows.
//!
//! And it is the way by which the partitions that the follower keeps hear from the group's partition of
//! transactions that they share ([`execute::siblings`]): one frame for each follower and round has all of it.
//! A follower that comes anew is told again what its partitions have not final-committed. Whoever has
//! forgotten some of that tells it to fetch a checkpoint instead.
//!
//! A frame may not be of any size, and a link not hold any number of them. So what is too large for one frame
//! goes in parts, which may come in any order (a follower that would have to remember too many of them gives
//! up the oldest, and its subscription with them); and a follower that has not said to have heard what it was
//! sent is told little more than that there is something. What waits for it meanwhile is bounded: beyond the
//! bound its subscription *lapses*, which means that what waits still goes to it, nothing joins that, and
//! then it is not told anything any more. So it comes anew, and is told what it lacks from where it is by
//! then.
//!
//! A subscription numbers its frames. One that comes too early waits for those before it, a little while:
//! then they are lost, and that ends the subscription. The follower begins another behind what is confirmed.
//! One that has not begun in time is not waited for, but is taken if it begins before a later one: over a
//! slow link, what is told may take longer than anybody's patience.
//!
//! Invariants:
//! 1. A follower is never told that something is agreed before it was sent the batch, under the same
//!    subscription.
//! 2. A follower is sent all that it executes, whichever map either of the two has.
//! 3. A follower never confirms what its group has not agreed on, whomever it follows, and however often that
//!    changes.

mod listen;
mod parts;
mod tell;
mod told;

pub(in crate::cluster) use listen::{DOUBT_TICKS, Place, Sources, View};
pub use parts::{Item, Part};
pub(in crate::cluster) use tell::{Follower, Followers, Pending, Room, Saying};
pub use told::{Answered, Fed, Said};
pub(in crate::cluster) use told::{News, Wish};
