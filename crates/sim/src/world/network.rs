//! The network between hosts and clients.
//!
//! Two kinds of traffic share the links. *Streams* are what TCP gives to a client and its server: a frame
//! arrives once and in order, a loss only makes it late, and a cut link holds it until the link heals.
//! *Datagrams* are what replicas send each other: they are lost, duplicated, overtaken, and dropped by a cut.
//!
//! A link's flight time is its base latency (a zone's, or that between zones) with a jitter that is drawn for
//! every frame, and now and then a long tail; then the frame waits for the link's bandwidth. A cut names two
//! sets of participants and stops what flows from the first to the second: one-way unless it is made both
//! ways.

use super::{Address, Traffic};
use crate::draw::Draw;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How long frames fly, while nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Base latency inside a zone, in microseconds.
    pub zone_us: u64,
    /// Base latency between zones, in microseconds.
    pub between_zones_us: u64,
    /// How much longer than the base a frame may take, in percent of it.
    pub jitter_percent: u64,
    /// Of 1000 frames, how many take ten times as long.
    pub tail_permille: u32,
    /// A link's bandwidth, in bytes per microsecond (125 is 1 Gbit/s).
    pub bytes_per_us: u64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} us inside a zone, {} us between zones, up to {} % more, {} frames of 1000 late, {} bytes a \
             us",
            self.zone_us, self.between_zones_us, self.jitter_percent, self.tail_permille, self.bytes_per_us
        )
    }
}

impl Latency {
    /// A data centre: 50 microseconds, a quarter of it jitter, 10 Gbit/s.
    pub const STEADY: Latency = Latency {
        zone_us: 50,
        between_zones_us: 500,
        jitter_percent: 25,
        tail_permille: 0,
        bytes_per_us: 1250,
    };

    /// The longest flight, while nothing is wrong, but for the tail.
    pub fn flight_us(&self) -> u64 {
        self.zone_us.max(self.between_zones_us) * (100 + self.jitter_percent) / 100
    }

    /// Any latency.
    pub fn draw(draw: &mut Draw) -> Latency {
        let zone_us = draw.pick(&[20, 50, 200, 1_000]);
        Latency {
            zone_us,
            between_zones_us: zone_us * draw.pick(&[1, 5, 20]),
            jitter_percent: draw.pick(&[0, 25, 100, 500]),
            tail_permille: draw.pick(&[0, 0, 10, 50]),
            bytes_per_us: draw.pick(&[10, 125, 1250]),
        }
    }
}

/// What happens to a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives: once, or (a datagram) twice.
    Arrives(u64, Option<u64>),
    /// It is gone, and why.
    Lost(&'static str),
    /// A cut holds it until the link heals.
    Held,
}

/// Who can't reach whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub from: Vec<Address>,
    pub to: Vec<Address>,
    pub one_way: bool,
}

impl Cut {
    fn stops(&self, from: Address, to: Address) -> bool {
        let forth = self.from.contains(&from) && self.to.contains(&to);
        let back = self.from.contains(&to) && self.to.contains(&from);
        forth || (back && !self.one_way)
    }
}

/// Bad weather for datagrams (and, as delays, for streams), out of 1000 frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weather {
    pub loss_permille: u32,
    pub duplicate_permille: u32,
}

#[derive(Debug, Default)]
struct Link {
    /// When the last byte that was sent has left.
    busy_until_ns: u64,
    /// When the last frame of the stream arrives.
    stream_until_ns: u64,
    /// Flight times are multiplied by this.
    slow: u64,
}

/// A link takes no more datagrams while what it has takes longer than this: a node breaks off a connection
/// that its peer does not keep up with.
const QUEUED_NS_MAX: u64 = 1_000_000_000;
/// A lost segment of a stream comes again after so long.
const RETRANSMISSION_NS: u64 = 200_000_000;

pub(super) struct Network {
    latency: Latency,
    zones: u16,
    draw: Draw,
    links: BTreeMap<(Address, Address), Link>,
    /// By the number that names a cut.
    cuts: BTreeMap<u64, Cut>,
    pub weather: Weather,
}

impl Network {
    pub(super) fn new(latency: Latency, zones: u16, draw: Draw) -> Network {
        Network {
            latency,
            zones: zones.max(1),
            draw,
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            weather: Weather::default(),
        }
    }

    /// Hosts and clients are dealt to the zones in turn.
    fn zone(&self, address: Address) -> u16 {
        match address {
            Address::Host(number) | Address::Client(number) => number % self.zones,
        }
    }

    pub(super) fn is_cut(&self, from: Address, to: Address) -> bool {
        self.cuts.values().any(|cut| cut.stops(from, to))
    }
    pub(super) fn cut(&mut self, number: u64, cut: Cut) {
        self.cuts.insert(number, cut);
    }
    pub(super) fn heal(&mut self, number: u64) {
        self.cuts.remove(&number);
    }
    pub(super) fn slow_down(&mut self, from: Address, to: Address, factor: u64) {
        self.links.entry((from, to)).or_default().slow = factor;
    }
    /// Nothing is wrong any more.
    pub(super) fn heal_all(&mut self) {
        self.cuts.clear();
        self.weather = Weather::default();
        self.links.values_mut().for_each(|link| link.slow = 1);
    }

    /// Sends a frame of so many bytes.
    pub(super) fn send(
        &mut self,
        now_ns: u64,
        from: Address,
        to: Address,
        bytes: u64,
        traffic: Traffic,
    ) -> Fate {
        if !self.cuts.is_empty() && self.is_cut(from, to) {
            return match traffic {
                Traffic::Stream => Fate::Held,
                Traffic::Datagram => Fate::Lost("the link is cut"),
            };
        }
        let same_zone = self.zone(from) == self.zone(to);
        let link = self.links.entry((from, to)).or_default();
        if traffic == Traffic::Datagram && link.busy_until_ns > now_ns + QUEUED_NS_MAX {
            return Fate::Lost("the link is full");
        }
        let base_us = if same_zone { self.latency.zone_us } else { self.latency.between_zones_us };
        let (draw, latency) = (&mut self.draw, &self.latency);
        let mut flight = || {
            let jitter_ns = draw.below(1 + base_us * 10 * latency.jitter_percent);
            let tail = if draw.permille(latency.tail_permille) { 10 } else { 1 };
            (base_us * 1000 + jitter_ns) * tail * link.slow.max(1)
        };
        let sent_ns = link.busy_until_ns.max(now_ns) + bytes * 1000 / latency.bytes_per_us.max(1);
        link.busy_until_ns = sent_ns;
        let mut arrival_ns = sent_ns + flight();
        match traffic {
            Traffic::Stream => {
                if self.weather.loss_permille > 0 && self.draw.permille(self.weather.loss_permille) {
                    arrival_ns += RETRANSMISSION_NS;
                }
                arrival_ns = arrival_ns.max(link.stream_until_ns);
                link.stream_until_ns = arrival_ns;
                Fate::Arrives(arrival_ns, None)
            }
            Traffic::Datagram => {
                let again_ns = sent_ns + flight() * 3;
                if self.draw.permille(self.weather.loss_permille) {
                    return Fate::Lost("lost on the way");
                }
                let twice = self.draw.permille(self.weather.duplicate_permille);
                Fate::Arrives(arrival_ns, twice.then_some(again_ns))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Address = Address::Host(0);
    const B: Address = Address::Host(1);
    const C: Address = Address::Client(0);

    fn network(weather: Weather) -> Network {
        let latency = Latency { jitter_percent: 500, tail_permille: 100, ..Latency::STEADY };
        let mut network = Network::new(latency, 3, Draw::new(1));
        network.weather = weather;
        network
    }

    #[test]
    fn streams_keep_their_order_and_datagrams_do_not() {
        let mut network = network(Weather { loss_permille: 100, duplicate_permille: 100 });
        let mut last = 0;
        let (mut lost, mut twice, mut overtaken, mut latest) = (0, 0, 0, 0);
        for now_ns in (0..1_000_000).step_by(1000) {
            let Fate::Arrives(at_ns, None) = network.send(now_ns, C, A, 100, Traffic::Stream) else {
                panic!("a stream loses and repeats nothing");
            };
            assert!(at_ns >= last && at_ns >= now_ns + 50_000);
            last = at_ns;
            match network.send(now_ns, A, B, 100, Traffic::Datagram) {
                Fate::Lost(_) => lost += 1,
                Fate::Held => panic!("nobody cut the link"),
                Fate::Arrives(at_ns, again) => {
                    overtaken += u64::from(at_ns < latest);
                    latest = latest.max(at_ns);
                    twice += u64::from(again.is_some());
                }
            }
        }
        assert!(lost > 50 && twice > 50 && overtaken > 50, "{lost} {twice} {overtaken}");
    }

    #[test]
    fn a_cut_stops_one_direction_or_both_until_it_heals() {
        let mut network = network(Weather::default());
        let mut cut = Cut { from: vec![A], to: vec![B, C], one_way: true };
        network.cut(1, cut.clone());
        assert_eq!(network.send(0, A, C, 1, Traffic::Stream), Fate::Held);
        assert!(matches!(network.send(0, A, B, 1, Traffic::Datagram), Fate::Lost(_)));
        assert!(matches!(network.send(0, B, A, 1, Traffic::Datagram), Fate::Arrives(..)));
        cut.one_way = false;
        network.cut(1, cut);
        assert!(network.is_cut(B, A) && !network.is_cut(B, C));
        network.heal(1);
        assert!(!network.is_cut(A, B));
    }

    #[test]
    fn a_link_that_is_full_loses_datagrams_until_it_has_sent_what_it_has() {
        let mut network = network(Weather::default());
        let second = QUEUED_NS_MAX * Latency::STEADY.bytes_per_us / 1_000;
        let mut send = |now_ns, bytes, traffic| network.send(now_ns, A, B, bytes, traffic);
        assert!(matches!(send(0, second + 10_000, Traffic::Datagram), Fate::Arrives(..)));
        assert_eq!(send(0, 1, Traffic::Datagram), Fate::Lost("the link is full"));
        assert!(matches!(send(0, 0, Traffic::Stream), Fate::Arrives(..)), "a stream waits");
        assert!(matches!(send(10_000_000, 1, Traffic::Datagram), Fate::Arrives(..)));
    }

    #[test]
    fn bandwidth_and_slowness_add_up() {
        let mut network = Network::new(Latency { jitter_percent: 0, ..Latency::STEADY }, 1, Draw::new(1));
        let mut send = |bytes| network.send(0, A, B, bytes, Traffic::Datagram);
        assert_eq!(send(1_250_000), Fate::Arrives(1_050_000, None));
        assert_eq!(send(0), Fate::Arrives(1_050_000, None), "it waits for the first");
        network.slow_down(A, B, 10);
        assert_eq!(network.send(0, A, B, 0, Traffic::Datagram), Fate::Arrives(1_500_000, None));
    }
}
