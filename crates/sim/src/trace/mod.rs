//! What happened in a virtual world, for a reader: a recorder, a text, and a sequence diagram.
//!
//! A world has *lanes*, its hosts and clients, and *events*: a copy of a message leaves a lane, arrives at
//! another or is lost; something happens at a lane; a fault is injected; an oracle gives its verdict. A
//! [`Trace`] takes them in the order in which they happen and shows them in that order, one event a row:
//!
//! - [`Trace::text`] in aligned columns, for a terminal and for `diff`;
//! - [`Trace::svg`] as a sequence diagram, with time running down;
//! - [`Trace::html`] as one page around that diagram, with what made the run and a filter. It needs no
//!   network.
//!
//! Invariants:
//!
//! 1. *Bounded.* The last `events_max` events are kept, and beside them the last `events_max` messages; each
//!    text up to [`TEXT_BYTES_MAX`]. What was dropped is counted, and said in every form.
//! 2. *A function of what was pushed*: no clock, no address, no hash. The same run gives the same bytes.
//! 3. *Whatever a text contains*, a row stays one row and the diagram stays well-formed: control characters
//!    are shown as `\x1b`, and marks that would turn the reading direction as `\u{202e}`.
//!
//! Rows, not milliseconds, are the scale: worlds have long silences, and bursts at one instant. The time
//! stands before each row, and the flight time at each arrival.
//!
//! Recording costs a formatted text for every event. A search over seeds does not record; it runs the seed
//! that failed again with a trace.

mod page;
mod svg;
mod text;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use words::printable;

/// A longer text of an event is cut here, and says so.
pub const TEXT_BYTES_MAX: usize = 4096;

/// A participant of one [`Trace`]: a host or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u16);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A copy of a message leaves `from`.
    Sent {
        /// Names this copy. A network that duplicates a message either sends two copies, or lets one arrive
        /// twice.
        id: u64,
        /// Who sends.
        from: Lane,
        /// For whom it is; `from` itself is possible.
        to: Lane,
        /// The message in short.
        label: String,
    },
    /// The copy `id` arrives; again, if it has arrived before.
    Arrived {
        /// The copy.
        id: u64,
    },
    /// The network drops the copy `id`.
    Lost {
        /// The copy.
        id: u64,
        /// What the network says about it: "partition", "queue full".
        why: &'static str,
    },
    /// Something happens at a participant: "delivered epoch 3 (positions 7-9)".
    Note {
        /// The participant.
        lane: Lane,
        /// What happens.
        text: String,
    },
    /// The world injects a fault: a crash, a restart, a partition, a clock that jumps.
    Fault {
        /// The participant, or none if it concerns several.
        lane: Option<Lane>,
        /// The fault.
        text: String,
    },
    /// What an oracle found. It may have several lines.
    Verdict {
        /// The finding.
        text: String,
    },
}

/// The last events of a run.
#[derive(Clone, Debug)]
pub struct Trace {
    lanes: Vec<String>,
    events_max: usize,
    rows: VecDeque<Row>,
    dropped: u64,
    /// The newest copy of each id among `sent`.
    flights: BTreeMap<u64, Flight>,
    /// The last `events_max` copies that were sent, oldest first. Copies fly longer than events are kept: an
    /// arrival can still say what arrived when the row of its departure is gone.
    sent: VecDeque<Arc<Message>>,
    /// How many copies were sent in all.
    sent_count: u64,
}

/// A copy of a message.
#[derive(Debug)]
struct Message {
    /// Counts the copies of a trace: unlike the id, it is never used again.
    number: u64,
    id: u64,
    at_ns: u64,
    from: Lane,
    to: Lane,
    label: String,
}

#[derive(Clone, Debug)]
struct Flight {
    message: Arc<Message>,
    arrivals: u32,
}

/// An event as it is kept.
#[derive(Clone, Debug)]
struct Row {
    at_ns: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Sent(Arc<Message>),
    Arrived {
        message: Arc<Message>,
        /// Counted from 1.
        nth: u32,
    },
    Lost {
        message: Arc<Message>,
        why: &'static str,
    },
    /// Something came of a copy that nobody remembers.
    Stray {
        id: u64,
        fate: &'static str,
    },
    Note {
        lane: Lane,
        text: String,
    },
    Fault {
        lane: Option<Lane>,
        text: String,
    },
    Verdict {
        text: String,
    },
}

impl Row {
    fn message(&self) -> Option<&Arc<Message>> {
        match &self.what {
            What::Sent(message) | What::Arrived { message, .. } | What::Lost { message, .. } => Some(message),
            _ => None,
        }
    }
    /// How long the message was in flight.
    fn flight_ns(&self, message: &Message) -> u64 {
        self.at_ns.saturating_sub(message.at_ns)
    }
}

impl Trace {
    /// An empty trace that keeps the last `events_max` events.
    pub fn new(events_max: usize) -> Trace {
        Trace {
            lanes: Vec::new(),
            events_max,
            rows: VecDeque::new(),
            dropped: 0,
            flights: BTreeMap::new(),
            sent: VecDeque::new(),
            sent_count: 0,
        }
    }

    /// The participant of this name; a new one stands to the right of the others.
    ///
    /// # Panics
    /// If there are 65,536 participants already.
    pub fn lane(&mut self, name: &str) -> Lane {
        let index = self.lanes.iter().position(|known| known == name);
        let index = index.unwrap_or_else(|| {
            self.lanes.push(name.to_owned());
            self.lanes.len() - 1
        });
        Lane(u16::try_from(index).expect("a trace has at most 65,536 lanes"))
    }

    /// Records what happens at `at_ns`, in nanoseconds of virtual time. Events are shown in the order in
    /// which they are pushed, so the caller's time must not go back.
    ///
    /// # Panics
    /// If the event names a lane that this trace has not given out.
    pub fn push(&mut self, at_ns: u64, event: Event) {
        let what = match event {
            Event::Sent { id, from, to, label } => {
                self.check(from);
                self.check(to);
                self.sent_count += 1;
                let message = Arc::new(Message {
                    number: self.sent_count,
                    id,
                    at_ns,
                    from,
                    to,
                    label: words::bound(label),
                });
                self.remember(&message);
                What::Sent(message)
            }
            Event::Arrived { id } => match self.flights.get_mut(&id) {
                Some(flight) => {
                    flight.arrivals += 1;
                    What::Arrived { message: flight.message.clone(), nth: flight.arrivals }
                }
                None => What::Stray { id, fate: "arrived" },
            },
            Event::Lost { id, why } => match self.flights.get(&id) {
                Some(flight) => What::Lost { message: flight.message.clone(), why },
                None => What::Stray { id, fate: why },
            },
            Event::Note { lane, text } => {
                self.check(lane);
                What::Note { lane, text: words::bound(text) }
            }
            Event::Fault { lane, text } => {
                if let Some(lane) = lane {
                    self.check(lane);
                }
                What::Fault { lane, text: words::bound(text) }
            }
            Event::Verdict { text } => What::Verdict { text: words::bound(text) },
        };
        self.rows.push_back(Row { at_ns, what });
        if self.rows.len() > self.events_max {
            self.rows.pop_front();
            self.dropped += 1;
        }
    }

    /// How many events are kept.
    pub fn kept(&self) -> usize {
        self.rows.len()
    }

    /// How many earlier events were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn check(&self, lane: Lane) {
        assert!(
            usize::from(lane.0) < self.lanes.len(),
            "{lane:?} is not a lane of this trace, which has {}",
            self.lanes.len()
        );
    }

    fn remember(&mut self, message: &Arc<Message>) {
        self.flights.insert(message.id, Flight { message: message.clone(), arrivals: 0 });
        self.sent.push_back(message.clone());
        if self.sent.len() > self.events_max
            && let Some(oldest) = self.sent.pop_front()
            // The id may have been used again, and then it is the newer copy's.
            && let Some(flight) = self.flights.get(&oldest.id)
            && flight.message.number == oldest.number
        {
            self.flights.remove(&oldest.id);
        }
    }

    fn name(&self, lane: Lane) -> &str {
        &self.lanes[usize::from(lane.0)]
    }

    /// What is missing before the first row, if anything is.
    fn missing(&self) -> Option<String> {
        match self.dropped {
            0 => None,
            1 => Some("1 earlier event was dropped".to_owned()),
            count => Some(format!("{count} earlier events were dropped")),
        }
    }
}
