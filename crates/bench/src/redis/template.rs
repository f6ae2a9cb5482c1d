//! Prebuilt requests: all bytes are laid out once, and only digits are patched before each sending.

use txn::hash::mix;

/// A generator of 64-bit numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// Starts from a seed.
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }
    /// The next number.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let value = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }
    /// A number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A part of a command's argument.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Fixed bytes.
    Text(&'a str),
    /// A random number below `bound`, in decimal with leading zeros.
    Number {
        /// How many digits it takes.
        digits: usize,
        /// What it stays below.
        bound: u64,
        /// Whether it must differ from the number before it in the command.
        fresh: bool,
    },
}

#[derive(Clone, Debug)]
struct Hole {
    at: usize,
    digits: usize,
    bound: u64,
    fresh: bool,
}

/// A pipeline of equal commands with holes.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    holes: Vec<Hole>,
    random: SplitMix,
}

impl Template {
    /// `pipeline` times the command whose arguments are `args`, each made of parts.
    pub fn new(args: &[&[Part<'_>]], pipeline: usize, seed: u64) -> Template {
        let mut template = Template { bytes: Vec::new(), holes: Vec::new(), random: SplitMix::new(seed) };
        for _ in 0..pipeline {
            template.bytes.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
            for arg in args {
                template.argument(arg);
            }
        }
        template
    }

    fn argument(&mut self, parts: &[Part<'_>]) {
        let length: usize = parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.len(),
                Part::Number { digits, .. } => *digits,
            })
            .sum();
        self.bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
        for part in parts {
            match *part {
                Part::Text(text) => self.bytes.extend_from_slice(text.as_bytes()),
                Part::Number { digits, bound, fresh } => {
                    self.holes.push(Hole { at: self.bytes.len(), digits, bound, fresh });
                    self.bytes.resize(self.bytes.len() + digits, b'0');
                }
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Draws new numbers and gives the bytes to send.
    #[inline]
    pub fn refill(&mut self) -> &[u8] {
        let mut before = None;
        for hole in &self.holes {
            let mut value = self.random.below(hole.bound);
            if hole.fresh && before == Some(value) {
                value = (value + 1) % hole.bound;
            }
            before = Some(value);
            for digit in self.bytes[hole.at..hole.at + hole.digits].iter_mut().rev() {
                *digit = b'0' + (value % 10) as u8;
                value /= 10;
            }
        }
        &self.bytes
    }

    /// The bytes as last filled.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_their_holes() {
        let key = [Part::Text("k:"), Part::Number { digits: 3, bound: 5, fresh: false }];
        let other = [Part::Text("k:"), Part::Number { digits: 3, bound: 5, fresh: true }];
        let mut template = Template::new(&[&[Part::Text("MGET")], &key, &other], 2, 7);
        for _ in 0..100 {
            let text = String::from_utf8(template.refill().to_vec()).unwrap();
            assert_eq!(text.matches("*3\r\n$4\r\nMGET\r\n$5\r\nk:00").count(), 2, "{text}");
            let keys: Vec<&str> = text.lines().filter(|line| line.starts_with("k:")).collect();
            assert_eq!(keys.len(), 4);
            assert_ne!(keys[0], keys[1]);
            assert!(keys.iter().all(|key| *key <= "k:004"));
        }
    }
}
