//! Session tokens of a site ([`certify::pcsi::SessionToken`]), as bytes and with texts for clients.
//!
//! A token begins with a number that tells the system from others, also from one with the same description
//! that was founded earlier: it is made of the founders' directories. The bytes prove nothing: the caller
//! seals a token before it leaves, and opens the seal of one that comes back.

use super::{GeoSite, Stage};
use crate::site::SiteEffects;
use certify::Answer;
use certify::pcsi::{Lacking, Pcsi, SessionToken, TokenRefusal};
use std::collections::BTreeSet;
use txn::codec::{Reader, put_varint};
use txn::hash::mix;
use txn::{NodeId, RequestId};

const OTHER_SYSTEM: &str = "ERR the token is of another cluster, or of this one before it was set up anew: \
                            nothing was changed; ask a site of this cluster for a token with ORDO.SESSION";

const NO_TOKEN: &str = "ERR the token means nothing to this build of Ordo: nothing was changed; ask a site \
                        of this version for a token with ORDO.SESSION";

const FENCED_HERE: &str = "ERR the token was given after the other sites had fenced this one, which takes no \
                           further part: nothing was changed; use another site";

const LOST_HERE: &str = "ERR the token counts transactions of this site that the site has lost: nothing was \
                         changed; look which writes are missing, and begin anew with ORDO.SESSION";

impl GeoSite {
    /// A token of all that the site has. The answer to `id` says when it may leave: [`Answer::Committed`].
    pub fn give_token(&mut self, id: RequestId, effects: &mut SiteEffects) -> Option<Vec<u8>> {
        let protocol = self.protocol().filter(|_| self.silence.is_none());
        let Some(token) = protocol.and_then(Pcsi::token) else {
            effects.answers.push((id, Answer::Unavailable));
            return None;
        };
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.system());
        bytes.extend(token.encode());
        self.durable_answers.push_back((self.last_record(), id, Answer::Committed));
        self.round(effects);
        Some(bytes)
    }

    /// A client's next transactions are to begin behind a token that a site with the same secret has sealed.
    /// The answer is [`Answer::Committed`], or says why they do not.
    pub fn follow_token(&mut self, id: RequestId, bytes: &[u8], effects: &mut SiteEffects) {
        let mut reader = Reader::new(bytes);
        let system = reader.varint();
        if matches!(self.stage, Stage::Running(_)) && system.is_some_and(|system| system != self.system()) {
            return effects.answers.push((id, Answer::Refused(OTHER_SYSTEM.into())));
        }
        let token = SessionToken::decode(reader.rest(), &self.options.protocol.sites);
        let Some(token) = token.filter(|_| system.is_some()) else {
            return effects.answers.push((id, Answer::Refused(NO_TOKEN.into())));
        };
        self.client(id, effects, |protocol, effects| protocol.follow_token(id, token, effects));
        self.round(effects);
    }

    /// A number that tells the system from others.
    fn system(&self) -> u64 {
        let founders = self.founders.iter();
        founders.fold(0, |system, (site, directory)| mix(mix(system ^ u64::from(site.0)) ^ directory))
    }

    /// The parts of a token that the site lacks, in words.
    fn lacked(&self, lacking: &Lacking, names: impl Fn(&BTreeSet<NodeId>) -> String) -> String {
        let Lacking { origins, granters, partitions, fencing } = lacking;
        let sites = &self.options.protocol.sites;
        let having = partitions.iter().map(|&of| {
            let having = names(&sites.sites(of).iter().copied().collect());
            format!("the word of one of {having} that it has what the token counts in partition {}", of.0)
        });
        let of_sites = [
            (origins, "what the token counts of "),
            (granters, "an update that the token counts, of a key that is resolved by one of "),
            (fencing, "the decision on a fence of "),
        ];
        let of_sites = of_sites.iter().filter(|(sites, _)| !sites.is_empty());
        let texts = of_sites.map(|(sites, text)| format!("{text}{}", names(sites)));
        texts.chain(having).collect::<Vec<_>>().join("; and ")
    }

    /// The answer to a client whose token this site does not have, or does not take.
    pub(super) fn token_refused(&self, refusal: &TokenRefusal) -> Answer {
        let names = |sites: &BTreeSet<NodeId>| -> String {
            let names = sites.iter().filter_map(|site| self.options.names.get(site));
            names.map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let text = match refusal {
            TokenRefusal::FencedHere => FENCED_HERE.to_owned(),
            TokenRefusal::LostHere => LOST_HERE.to_owned(),
            TokenRefusal::Fenced(site) => format!(
                "ERR '{}' was fenced after the token was given, and the token may count writes of it that \
                 are lost: nothing was changed; look which writes remain, and begin anew with ORDO.SESSION",
                names(&BTreeSet::from([*site]))
            ),
            TokenRefusal::UnheardFences(sites) => format!(
                "CLUSTERDOWN the token was given after a fence of {}, of which this site has not heard in \
                 time: nothing was changed; try again, or use another site",
                names(sites)
            ),
            TokenRefusal::Lacks(lacking) => format!(
                "CLUSTERDOWN this site has not got in time {}: nothing was changed; try again, or use \
                 another site",
                self.lacked(lacking, names)
            ),
        };
        Answer::Refused(text.into())
    }
}
