//! `notify-keyspace-events`: which changes of keys are published.

/// Letters of the setting, in the order in which Redis prints them. The classes of keys that were missed (m)
/// and of new ones (n) have no events: reads tell nobody anything, and a write does not look at what was
/// there.
const LETTERS: &[u8] = b"g$lshzxetdKEmn";
/// What `A` stands for.
const ALL: &[u8] = b"g$lshzxetd";

/// The letters that are set, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotifyFlags(pub(super) u16);

fn bit(letter: u8) -> Option<u16> {
    let place = LETTERS.iter().position(|&known| known == letter)?;
    Some(1 << place)
}

impl NotifyFlags {
    /// From the setting's text. `None` if a letter means nothing.
    pub fn parse(text: &str) -> Option<NotifyFlags> {
        let mut flags = 0;
        for letter in text.bytes() {
            flags |= match letter {
                b'A' => ALL.iter().filter_map(|&letter| bit(letter)).sum(),
                letter => bit(letter)?,
            };
        }
        Some(NotifyFlags(flags))
    }

    /// The setting's text, as Redis prints it.
    pub fn text(self) -> String {
        let all: u16 = ALL.iter().filter_map(|&letter| bit(letter)).sum();
        let has_all = self.0 & all == all;
        let shown = LETTERS.iter().filter(|&&letter| self.has(letter) && !(has_all && ALL.contains(&letter)));
        let shown = shown.map(|&letter| char::from(letter));
        has_all.then_some('A').into_iter().chain(shown).collect()
    }

    fn has(self, letter: u8) -> bool {
        bit(letter).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Whether events of a class are published at all.
    pub fn has_class(self, class: u8) -> bool {
        self.has(class)
    }

    /// Whether they go to the channels of keys.
    pub fn has_keyspace(self) -> bool {
        self.has(b'K')
    }

    /// Whether they go to the channels of events.
    pub fn has_keyevent(self) -> bool {
        self.has(b'E')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_printed_as_redis_prints_it() {
        for (text, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Elg", "glE"),
            ("Kg$lshzxetd", "AK"),
            ("KEAm", "AKEm"),
            ("nmE", "Emn"),
        ] {
            assert_eq!(NotifyFlags::parse(text).map(NotifyFlags::text).as_deref(), Some(shown));
        }
        assert_eq!(NotifyFlags::parse("Kq"), None);
        let flags = NotifyFlags::parse("El").unwrap_or_default();
        assert!(flags.has_class(b'l') && flags.has_keyevent());
        assert!(!flags.has_class(b'h') && !flags.has_keyspace());
    }
}
