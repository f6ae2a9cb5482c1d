//! Programs as trees over the grammar of `grammar.txt`, grown and changed by chance.

use std::collections::BTreeMap;
use txn::hash::mix;

const GRAMMAR: &str = include_str!("grammar.txt");
/// What every program begins with: its variables.
const PROLOGUE: &str = "local t, u, s, z, n, m, v = {}, {1, 2, 3}, 'abc', ('x'):rep(1000), 0, 1000, nil \
     local function f(...) return ... end local function g(a, b) return a end ";
/// A tree that is larger is not kept.
pub const NODES_MAX: usize = 150;

/// Numbers by chance, the same for a seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

enum Part {
    Text(&'static str),
    Symbol(u8),
}

struct Rule {
    symbol: u8,
    parts: Vec<Part>,
    /// The height of the lowest tree that begins with it.
    height: usize,
}

pub struct Grammar {
    rules: Vec<Rule>,
    by_symbol: BTreeMap<u8, Vec<usize>>,
}

/// A rule, and the trees in the place of its symbols.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    pub rule: usize,
    pub children: Vec<Tree>,
}

impl Tree {
    pub fn nodes(&self) -> usize {
        1 + self.children.iter().map(Tree::nodes).sum::<usize>()
    }
    pub fn at(&self, mut index: usize) -> &Tree {
        if index == 0 {
            return self;
        }
        index -= 1;
        for child in &self.children {
            let nodes = child.nodes();
            if index < nodes {
                return child.at(index);
            }
            index -= nodes;
        }
        self
    }
    pub fn at_mut(&mut self, mut index: usize) -> &mut Tree {
        if index == 0 {
            return self;
        }
        index -= 1;
        for (place, child) in self.children.iter().enumerate() {
            let nodes = child.nodes();
            if index < nodes {
                return self.children[place].at_mut(index);
            }
            index -= nodes;
        }
        self
    }
    /// Calls for the rules of all nodes.
    pub fn rules(&self, with: &mut impl FnMut(usize)) {
        with(self.rule);
        for child in &self.children {
            child.rules(with);
        }
    }
}

fn parts(mut text: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find('<').map(|at| at + from) {
        match text.as_bytes()[at..] {
            [b'<', symbol @ b'A'..=b'Z', b'>', ..] => {
                parts.push(Part::Text(&text[..at]));
                parts.push(Part::Symbol(symbol));
                text = &text[at + 3..];
                from = 0;
            }
            _ => from = at + 1,
        }
    }
    parts.push(Part::Text(text));
    parts
}

impl Grammar {
    pub fn new() -> Grammar {
        let mut grammar = Grammar { rules: Vec::new(), by_symbol: BTreeMap::new() };
        for line in GRAMMAR.lines() {
            let Some((symbol, text)) = line.split_once(" | ") else {
                assert!(line.is_empty() || line.starts_with('#'), "not a rule: {line}");
                continue;
            };
            let symbol = symbol.as_bytes()[0];
            grammar.by_symbol.entry(symbol).or_default().push(grammar.rules.len());
            grammar.rules.push(Rule { symbol, parts: parts(text), height: usize::MAX });
        }
        loop {
            let heights: Vec<usize> = grammar.rules.iter().map(|rule| grammar.height(rule)).collect();
            let mut is_same = true;
            for (rule, height) in grammar.rules.iter_mut().zip(heights) {
                is_same &= rule.height == height;
                rule.height = height;
            }
            if is_same {
                break;
            }
        }
        assert!(grammar.rules.iter().all(|rule| rule.height < usize::MAX), "a rule has no end");
        grammar
    }

    fn lowest(&self, symbol: u8) -> usize {
        let rules = self.by_symbol.get(&symbol);
        let rules = rules.unwrap_or_else(|| panic!("<{}> has no rule", symbol as char));
        rules.iter().map(|&rule| self.rules[rule].height).min().unwrap_or(usize::MAX)
    }

    fn height(&self, rule: &Rule) -> usize {
        let below = rule.parts.iter().map(|part| match part {
            Part::Text(_) => 0,
            Part::Symbol(symbol) => self.lowest(*symbol),
        });
        below.max().unwrap_or(0).saturating_add(1)
    }

    pub fn rules(&self) -> usize {
        self.rules.len()
    }
    pub fn symbol(&self, tree: &Tree) -> u8 {
        self.rules[tree.rule].symbol
    }

    /// A tree of this symbol, not much higher than `height`.
    pub fn grow(&self, symbol: u8, height: usize, chance: &mut Chance) -> Tree {
        let mut rules = self.by_symbol[&symbol].clone();
        let low = self.lowest(symbol);
        rules.retain(|&rule| self.rules[rule].height <= height.max(low));
        let rule = rules[chance.below(rules.len())];
        let children = self.rules[rule].parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Symbol(symbol) => Some(self.grow(*symbol, height.saturating_sub(1), chance)),
        });
        Tree { rule, children: children.collect() }
    }

    /// The nodes of a tree that have this symbol.
    pub fn nodes_of(&self, tree: &Tree, symbol: u8) -> Vec<usize> {
        let mut found = Vec::new();
        let mut index = 0;
        tree.rules(&mut |rule| {
            if self.rules[rule].symbol == symbol {
                found.push(index);
            }
            index += 1;
        });
        found
    }

    /// Changes a tree; another one may give a part.
    pub fn mutate(&self, tree: &mut Tree, other: &Tree, chance: &mut Chance) {
        let index = chance.below(tree.nodes());
        let symbol = self.symbol(tree.at(index));
        match chance.below(6) {
            0..=2 => {
                let height = 1 + chance.below(5);
                *tree.at_mut(index) = self.grow(symbol, height, chance);
            }
            // A part of the other one.
            3 => {
                let givers = self.nodes_of(other, symbol);
                if !givers.is_empty() {
                    *tree.at_mut(index) = other.at(givers[chance.below(givers.len())]).clone();
                }
            }
            // A part of itself, so that it shrinks or repeats.
            4 => {
                let givers = self.nodes_of(tree, symbol);
                *tree.at_mut(index) = tree.at(givers[chance.below(givers.len())]).clone();
            }
            // The same symbols under another rule.
            _ => {
                let mut new = self.grow(symbol, 3, chance);
                let old = tree.at(index).clone();
                for child in &mut new.children {
                    let symbol = self.symbol(child);
                    let fitting: Vec<&Tree> =
                        old.children.iter().filter(|old| self.symbol(old) == symbol).collect();
                    if !fitting.is_empty() {
                        *child = fitting[chance.below(fitting.len())].clone();
                    }
                }
                *tree.at_mut(index) = new;
            }
        }
    }

    /// Smaller trees that may stand in the place of a node.
    pub fn smaller(&self, node: &Tree) -> Vec<Tree> {
        let symbol = self.symbol(node);
        let mut smaller = Vec::new();
        // The lowest ones first, then what is below.
        if node.nodes() > 1 {
            let rules = self.by_symbol[&symbol].iter();
            let leaves = rules.filter(|&&rule| self.rules[rule].height == 1).take(4);
            smaller.extend(leaves.map(|&rule| Tree { rule, children: Vec::new() }));
        }
        let inner = self.nodes_of(node, symbol);
        smaller.extend(inner.into_iter().skip(1).take(12).map(|index| node.at(index).clone()));
        smaller
    }

    pub fn text(&self, tree: &Tree) -> String {
        let mut text = String::from(PROLOGUE);
        self.write(tree, &mut text);
        text
    }

    fn write(&self, tree: &Tree, text: &mut String) {
        let mut children = tree.children.iter();
        for part in &self.rules[tree.rule].parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Symbol(_) => {
                    if let Some(child) = children.next() {
                        self.write(child, text);
                    }
                }
            }
        }
    }
}
