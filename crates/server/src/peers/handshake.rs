//! Who is there? How two nodes prove to each other that they belong to one cluster, before anything else is
//! read.
//!
//! `docs/peer-protocol.md` has the bytes. The dialler proves itself first, so that whoever merely connects
//! gets nothing that the secret went into. A proof is an HMAC of everything that was said before, both nonces
//! and both nodes' numbers included, and of what no other connection of TLS has, under a label that names the
//! prover's role: it is of no use for another connection, in the other direction, or between other nodes, and
//! so to nobody who stands between the two.
//!
//! No sockets here: a side says how many bytes it wants next, takes them, and gives bytes to send.

use crate::tls::BINDING_BYTES;
use agree::Delivery;
use execute::EngineKind;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::ops::RangeInclusive;
use std::sync::Arc;
use txn::NodeId;

const MAGIC: [u8; 8] = *b"ORDOPEER";
/// The version of the handshake itself. The engine's number is beside it.
const FORMAT: u8 = 2;

const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const HELLO_BYTES: usize = 66;
/// Behind the status.
const CHALLENGE_BYTES: usize = 36;
/// What a side wants at once, at most.
pub(super) const WANTED_BYTES_MAX: usize = HELLO_BYTES;

const DIALLER: &[u8] = b"ordo peer: I dial";
const ACCEPTOR: &[u8] = b"ordo peer: I accept";

/// What TLS begins with: the head of a record with words of a handshake,
const TLS_HANDSHAKE: [u8; 2] = [22, 3];
/// or of one with an alert.
const TLS_ALERT: u8 = 21;
/// What to do where only one of two nodes speaks TLS.
pub(super) const TLS_AT_ONE_END: &str = "one of the two nodes speaks TLS and the other does not: set \
                                         tls-cluster to the same at all nodes of the cluster";

/// What to do where two nodes do not skip the same requests.
const OTHER_SKIPS: &str = "the two nodes do not skip the same requests of the order, so their data would \
     differ. Stop the one whose skips.txt lacks a request, and have that skipped there, too ('ordo admin \
     skip', docs/poisoned.md)";

/// What to do where two nodes have different engines.
const OTHER_ENGINE: &str = "the two nodes run different engines, and all nodes of a cluster run one. Stop \
     the node that has the wrong one, and start it with the cluster's: engine in the cluster's description, \
     the same file at every node, or else --engine";

/// What to do where the groups of two nodes agree in different ways.
const OTHER_DELIVERY: &str = "the two nodes agree in different ways. Stop the node that has the wrong one, \
     and start it with the cluster's: delivery in the cluster's description, the same file at every node. To \
     change it for all, stop all nodes first";

/// The status of a message that is no refusal.
const GO_ON: u8 = 0;

/// What only the two ends of a connection have: see [`Stream::binding`](crate::tls::Stream::binding).
pub(super) type Binding = [u8; BINDING_BYTES];

/// Bytes that were never used before.
pub(super) type Nonce = [u8; NONCE_BYTES];

/// What a node says of itself, and its secret.
pub(super) struct Identity {
    pub me: NodeId,
    pub cluster: u64,
    pub secret: Arc<[u8]>,
    pub protocols: RangeInclusive<u16>,
    /// What the node does not execute of the order: [`order::Skips::digest`].
    pub skips: u64,
    /// What executes here.
    pub engine: EngineKind,
    /// How groups agree here.
    pub delivery: Delivery,
}

/// Why a connection is refused. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// What came is no handshake that this build knows.
    OtherFormat = 1,
    /// The dialler belongs to another cluster.
    OtherCluster = 2,
    /// The dialler looks for another node.
    OtherNode = 3,
    /// The dialler has the acceptor's own number.
    SameNode = 4,
    /// The dialler's number is not in the map.
    UnknownNode = 5,
    /// There is no protocol that both know.
    NoCommonProtocol = 6,
    /// The proof is wrong.
    WrongSecret = 7,
    /// What came is the beginning of TLS.
    SpeaksTls = 8,
    /// The dialler skips other requests of the order.
    OtherSkips = 10,
    /// The dialler has another engine.
    OtherEngine = 11,
    /// The dialler's groups agree in another way.
    OtherDelivery = 12,
}

impl Identity {
    /// What this node has, where a refusal is about that: the end of its text.
    pub fn own(&self, refusal: Refusal) -> String {
        match refusal {
            Refusal::OtherEngine => format!(". Here the engine is {}", self.engine.name()),
            Refusal::OtherDelivery => format!(". Here the delivery is {}", self.delivery.name()),
            _ => String::new(),
        }
    }
}

impl Refusal {
    pub const ALL: [Refusal; 11] = [
        Refusal::OtherFormat,
        Refusal::OtherCluster,
        Refusal::OtherNode,
        Refusal::SameNode,
        Refusal::UnknownNode,
        Refusal::NoCommonProtocol,
        Refusal::WrongSecret,
        Refusal::SpeaksTls,
        Refusal::OtherSkips,
        Refusal::OtherEngine,
        Refusal::OtherDelivery,
    ];

    fn of(code: u8) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|known| *known as u8 == code)
    }

    /// Why this node was refused by another, and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Refusal::OtherFormat => {
                "it does not understand this node's handshake: run builds that can work together (one that \
                 does not know the setting engine has sparkle, and understands no other)"
            }
            Refusal::OtherCluster => {
                "it belongs to another cluster: correct its address, or the cluster's name in this node's \
                 description. If the cluster was recovered from another node while this one was gone (ordo \
                 admin recover), it goes on without this one for good: stop this node, and start a new one \
                 with an empty directory"
            }
            Refusal::OtherNode => {
                "another node answers at that address: correct the address in the cluster's description"
            }
            Refusal::SameNode => {
                "it says that it is this node: two processes run as one node, or the address is this \
                 node's own. Stop one of them, or correct the description"
            }
            Refusal::UnknownNode => {
                "it does not know this node: it has not heard yet that the node was added, or the node was \
                 taken out of the cluster (ordo admin status, at the other node, tells)"
            }
            Refusal::NoCommonProtocol => {
                "there is no protocol that both builds know: upgrade step by step, one release at a time"
            }
            Refusal::WrongSecret => {
                "this node's secret is not the other's, or somebody between the two takes their \
                 connections apart: give all nodes of the cluster the same secret, and look what stands \
                 between them"
            }
            Refusal::SpeaksTls => TLS_AT_ONE_END,
            Refusal::OtherSkips => OTHER_SKIPS,
            Refusal::OtherEngine => OTHER_ENGINE,
            Refusal::OtherDelivery => OTHER_DELIVERY,
        }
    }

    /// Why this node refused another, and what to do.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::OtherFormat => {
                "what it sent is no handshake that this build knows. Only nodes of the cluster may connect \
                 to this port"
            }
            Refusal::OtherCluster => {
                "it belongs to another cluster. Correct the addresses in that node's description of its \
                 cluster. If this cluster was recovered from one node (ordo admin recover), that node is \
                 one of those that were lost: stop it, and replace it by a new one"
            }
            Refusal::OtherNode => {
                "it looks for another node here. Correct this node's address in the cluster's description"
            }
            Refusal::SameNode => {
                "it says that it is this very node. Two processes run as one node, or this node's address \
                 is given as another's: stop one of them, or correct the description"
            }
            Refusal::UnknownNode => {
                "the cluster has no such node. If it should belong to the cluster, add it (ordo admin \
                 add-node); if it was removed, stop it"
            }
            Refusal::NoCommonProtocol => {
                "there is no protocol that both builds know. Upgrade step by step, one release at a time"
            }
            Refusal::WrongSecret => {
                "it cannot prove the cluster's secret here. If it belongs to the cluster, give it the same \
                 secret as the others, and look what stands between the two"
            }
            Refusal::OtherEngine => OTHER_ENGINE,
            Refusal::OtherDelivery => OTHER_DELIVERY,
            Refusal::SpeaksTls => {
                "it speaks TLS, and this node does not, at this address. If it belongs to the cluster, set \
                 tls-cluster to the same at all nodes"
            }
            Refusal::OtherSkips => OTHER_SKIPS,
        }
    }
}

/// The other side, once it has proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proven {
    pub node: NodeId,
    pub protocol: u16,
}

/// What a side does with bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send this, and take more.
    Continue(Vec<u8>),
    /// Send this: the handshake is over.
    Done(Vec<u8>, Proven),
}

/// Why a dialler gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The other side said so.
    Refused(Refusal),
    /// The other side said something that this build does not understand.
    Unintelligible,
    /// The other side does not have the secret.
    Impostor,
    /// The other side speaks TLS.
    SpeaksTls,
}

fn proof(identity: &Identity, role: &[u8], said: &[u8], binding: &Binding) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&identity.secret)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(role);
    mac.update(said);
    mac.update(binding);
    mac
}

fn bytes_of(mac: Hmac<Sha256>) -> [u8; MAC_BYTES] {
    mac.finalize().into_bytes().into()
}

/// The newest protocol of both.
fn common(ours: &RangeInclusive<u16>, theirs: &RangeInclusive<u16>) -> Option<u16> {
    let newest = *ours.end().min(theirs.end());
    (newest >= *ours.start().max(theirs.start())).then_some(newest)
}

/// An engine as a hello names it. Builds that could not choose one have Sparkle, and say 0.
fn engine_number(kind: EngineKind) -> u8 {
    match kind {
        EngineKind::Sparkle => 0,
        EngineKind::Calvin => 1,
        EngineKind::Ssmr => 2,
        EngineKind::Serial => 3,
        EngineKind::NoCc => 4,
        EngineKind::QStore => 5,
        EngineKind::ParSpec => 6,
    }
}

/// What a hello adds to the engine's number where groups agree by MiMoX.
const MIMOX: u8 = 0x80;

/// What executes and how groups agree, as a hello says it.
fn protocols_byte(identity: &Identity) -> u8 {
    let delivery = match identity.delivery {
        Delivery::Raft => 0,
        Delivery::Mimox => MIMOX,
    };
    engine_number(identity.engine) | delivery
}

/// Reads fixed places of a message whose length was checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_at(N);
        self.0 = rest;
        std::array::from_fn(|at| field[at])
    }
    fn number(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    fn range(&mut self) -> RangeInclusive<u16> {
        let oldest = self.number();
        oldest..=self.number()
    }
}

fn put_range(out: &mut Vec<u8>, range: &RangeInclusive<u16>) {
    out.extend_from_slice(&range.start().to_le_bytes());
    out.extend_from_slice(&range.end().to_le_bytes());
}

/// The side that connects.
pub(super) struct Dialling {
    to: NodeId,
    /// Everything that was said before the proofs.
    said: Vec<u8>,
    wants: Wants,
    protocol: u16,
}

#[derive(Clone, Copy)]
enum Wants {
    ChallengeStatus,
    Challenge,
    WelcomeStatus,
    Welcome,
}

impl Dialling {
    /// Begins, with the bytes to send.
    pub fn begin(identity: &Identity, to: NodeId, nonce: &Nonce) -> (Dialling, Vec<u8>) {
        let mut hello = Vec::with_capacity(HELLO_BYTES + 1 + CHALLENGE_BYTES);
        hello.extend_from_slice(&MAGIC);
        hello.extend_from_slice(&[FORMAT, protocols_byte(identity)]);
        hello.extend_from_slice(&identity.cluster.to_le_bytes());
        hello.extend_from_slice(&identity.me.0.to_le_bytes());
        hello.extend_from_slice(&to.0.to_le_bytes());
        put_range(&mut hello, &identity.protocols);
        hello.extend_from_slice(&identity.skips.to_le_bytes());
        hello.extend_from_slice(nonce);
        let dialling = Dialling { to, said: hello.clone(), wants: Wants::ChallengeStatus, protocol: 0 };
        (dialling, hello)
    }

    /// How many bytes it takes next.
    pub fn wants(&self) -> usize {
        match self.wants {
            Wants::ChallengeStatus | Wants::WelcomeStatus => 1,
            Wants::Challenge => CHALLENGE_BYTES,
            Wants::Welcome => MAC_BYTES,
        }
    }

    /// Takes as many bytes as it wants.
    pub fn take(&mut self, identity: &Identity, binding: &Binding, bytes: &[u8]) -> Result<Step, Failure> {
        let reply = match self.wants {
            Wants::ChallengeStatus | Wants::WelcomeStatus => {
                if bytes[0] == TLS_ALERT {
                    return Err(Failure::SpeaksTls);
                }
                if bytes[0] != GO_ON {
                    return Err(Refusal::of(bytes[0]).map_or(Failure::Unintelligible, Failure::Refused));
                }
                self.wants = match self.wants {
                    Wants::ChallengeStatus => Wants::Challenge,
                    _ => Wants::Welcome,
                };
                Vec::new()
            }
            Wants::Challenge => {
                self.said.push(GO_ON);
                self.said.extend_from_slice(bytes);
                let theirs = Fields(bytes).range();
                self.protocol = common(&identity.protocols, &theirs)
                    .ok_or(Failure::Refused(Refusal::NoCommonProtocol))?;
                self.wants = Wants::WelcomeStatus;
                bytes_of(proof(identity, DIALLER, &self.said, binding)).to_vec()
            }
            Wants::Welcome => {
                proof(identity, ACCEPTOR, &self.said, binding)
                    .verify_slice(bytes)
                    .map_err(|_| Failure::Impostor)?;
                let proven = Proven { node: self.to, protocol: self.protocol };
                return Ok(Step::Done(Vec::new(), proven));
            }
        };
        Ok(Step::Continue(reply))
    }
}

/// The side that is connected to.
pub(super) struct Accepting {
    nonce: Nonce,
    /// What was said before the proofs, and by whom: empty before the first message.
    said: Vec<u8>,
    claims: Proven,
}

impl Accepting {
    /// Begins, with nothing to send.
    pub fn begin(nonce: Nonce) -> Accepting {
        Accepting { nonce, said: Vec::new(), claims: Proven { node: NodeId(0), protocol: 0 } }
    }

    /// How many bytes it takes next.
    pub fn wants(&self) -> usize {
        if self.said.is_empty() { HELLO_BYTES } else { MAC_BYTES }
    }

    /// Who the dialler says that it is: node 0 if it did not say.
    pub fn claimed(&self) -> NodeId {
        self.claims.node
    }

    /// Takes as many bytes as it wants. A refusal is to be sent as its number.
    pub fn take(
        &mut self,
        identity: &Identity,
        binding: &Binding,
        knows: impl Fn(NodeId) -> bool,
        bytes: &[u8],
    ) -> Result<Step, Refusal> {
        if self.said.is_empty() {
            return self.take_hello(identity, knows, bytes);
        }
        proof(identity, DIALLER, &self.said, binding)
            .verify_slice(bytes)
            .map_err(|_| Refusal::WrongSecret)?;
        if !knows(self.claims.node) {
            return Err(Refusal::UnknownNode);
        }
        let mut welcome = vec![GO_ON];
        welcome.extend_from_slice(&bytes_of(proof(identity, ACCEPTOR, &self.said, binding)));
        Ok(Step::Done(welcome, self.claims))
    }

    fn take_hello(
        &mut self,
        identity: &Identity,
        knows: impl Fn(NodeId) -> bool,
        bytes: &[u8],
    ) -> Result<Step, Refusal> {
        if bytes.starts_with(&TLS_HANDSHAKE) {
            return Err(Refusal::SpeaksTls);
        }
        let mut fields = Fields(bytes);
        let (magic, [format, engine]) = (fields.take(), fields.take());
        if magic != MAGIC || format != FORMAT {
            return Err(Refusal::OtherFormat);
        }
        let cluster = u64::from_le_bytes(fields.take());
        self.claims.node = NodeId(fields.number());
        let to = NodeId(fields.number());
        if cluster != identity.cluster {
            return Err(Refusal::OtherCluster);
        }
        if self.claims.node == identity.me {
            return Err(Refusal::SameNode);
        }
        if to != identity.me {
            return Err(Refusal::OtherNode);
        }
        if !knows(self.claims.node) {
            return Err(Refusal::UnknownNode);
        }
        self.claims.protocol =
            common(&identity.protocols, &fields.range()).ok_or(Refusal::NoCommonProtocol)?;
        if u64::from_le_bytes(fields.take()) != identity.skips {
            return Err(Refusal::OtherSkips);
        }
        let own = protocols_byte(identity);
        if engine & !MIMOX != own & !MIMOX {
            return Err(Refusal::OtherEngine);
        }
        if engine != own {
            return Err(Refusal::OtherDelivery);
        }
        let mut challenge = vec![GO_ON];
        put_range(&mut challenge, &identity.protocols);
        challenge.extend_from_slice(&self.nonce);
        self.said.extend_from_slice(bytes);
        self.said.extend_from_slice(&challenge);
        Ok(Step::Continue(challenge))
    }
}

#[cfg(test)]
mod tests;
