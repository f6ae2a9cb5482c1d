//! A persistent sequence: what lists, and everything that has ranks, are made of.
//!
//! A B+tree in which a parent knows how many items each child has. An update copies the path to one leaf and
//! shares everything else with the clones that were made before, so that a version of a large collection
//! costs O(log n), and so do reading, inserting and removing by place, and searching by an order. Whoever
//! holds the only clone updates in place.
//!
//! A search descends by the keys of each child's last item ([`Item::Key`]) that stand in the branch itself,
//! and looks at an item far below only where keys don't decide: what costs in large trees is the memory that
//! no cache has.
//!
//! Invariants: all leaves have the same depth; no node is empty or has more than [`WIDTH_MAX`] items or
//! children; a child's `len` is the number of items below it, and its `last` the key of the last of them.

use crate::blob::Blob;
use std::cmp::Ordering;
use std::fmt;
use std::iter::FusedIterator;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

/// Items of a leaf, or children of a branch, at most. Copying a leaf is what an update costs, and walking
/// over many of them what a read costs.
const WIDTH_MAX: usize = 32;
/// A node from which something is removed joins its neighbour when it has fewer.
const WIDTH_MIN: usize = 10;

/// What a sequence is made of.
pub trait Item: Clone {
    /// What tells the place of most items in an order without a look at them; `()` where nobody searches, or
    /// only a few items.
    type Key: Copy;
    /// This item's.
    fn key(&self) -> Self::Key;
}

impl Item for Blob {
    type Key = ();
    fn key(&self) {}
}
impl<T: ?Sized> Item for Arc<T> {
    type Key = ();
    fn key(&self) {}
}

/// A sequence of items with structural sharing: an update of a clone costs O(log n) and leaves the original
/// as it was.
#[derive(Clone)]
pub struct Sequence<T: Item> {
    root: Option<Child<T>>,
}

struct Child<T: Item> {
    len: usize,
    last: T::Key,
    node: Arc<Node<T>>,
}

enum Node<T: Item> {
    Leaf(Vec<T>),
    Branch(Vec<Child<T>>),
}

/// By how many items a full leaf's memory grows: small collections are many, and twice as much as they need
/// is what they would take.
const GROWTH: usize = 2;

/// Where an insertion is: at an end a full node stays full, because the next insertion will be there, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Front,
    Back,
    Inside,
}

impl<T: Item> Clone for Child<T> {
    fn clone(&self) -> Child<T> {
        Child { len: self.len, last: self.last, node: self.node.clone() }
    }
}

/// For `Arc::make_mut`: with room for the item that is about to be inserted.
impl<T: Item> Clone for Node<T> {
    fn clone(&self) -> Node<T> {
        fn roomy<I: Clone>(items: &[I]) -> Vec<I> {
            let mut copy = Vec::with_capacity(items.len() + 1);
            copy.extend_from_slice(items);
            copy
        }
        match self {
            Node::Leaf(items) => Node::Leaf(roomy(items)),
            Node::Branch(children) => Node::Branch(roomy(children)),
        }
    }
}

impl<T: Item> Node<T> {
    fn width(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Branch(children) => children.len(),
        }
    }

    /// The key of the last item; none in a node that is about to lose its place.
    fn last(&self) -> Option<T::Key> {
        match self {
            Node::Leaf(items) => items.last().map(T::key),
            Node::Branch(children) => children.last().map(|child| child.last),
        }
    }
}

/// The child that has the item at a place, and the place there.
fn locate<T: Item>(children: &[Child<T>], mut index: usize) -> (usize, usize) {
    let last = children.len() - 1;
    for (at, child) in children[..last].iter().enumerate() {
        if index < child.len {
            return (at, index);
        }
        index -= child.len;
    }
    (last, index)
}

/// Splits what has become too wide.
fn split<I>(items: &mut Vec<I>, edge: Edge) -> Option<Vec<I>> {
    let at = match edge {
        Edge::Front => 1,
        Edge::Back => WIDTH_MAX,
        Edge::Inside => items.len() / 2,
    };
    (items.len() > WIDTH_MAX).then(|| items.split_off(at))
}

impl<T: Item> Child<T> {
    /// None of a node that is empty.
    fn new(node: Node<T>) -> Option<Child<T>> {
        let len = match &node {
            Node::Leaf(items) => items.len(),
            Node::Branch(children) => children.iter().map(|child| child.len).sum(),
        };
        Some(Child { len, last: node.last()?, node: Arc::new(node) })
    }

    /// What is below has changed.
    fn refresh(&mut self) {
        if let Some(last) = self.node.last() {
            self.last = last;
        }
    }

    /// The last item.
    fn last_item(&self) -> &T {
        let (items, index) = self.leaf_at(self.len - 1);
        &items[index]
    }

    /// The leaf that has the item at a place, and the place there.
    fn leaf_at(&self, mut index: usize) -> (&[T], usize) {
        let mut node = &*self.node;
        loop {
            match node {
                Node::Leaf(items) => return (items, index),
                Node::Branch(children) => {
                    let (at, place) = locate(children, index);
                    (node, index) = (&children[at].node, place);
                }
            }
        }
    }
}

impl<T: Item> Child<T> {
    fn update<R>(&mut self, index: usize, change: impl FnOnce(&mut T) -> R) -> R {
        let result = match Arc::make_mut(&mut self.node) {
            Node::Leaf(items) => change(&mut items[index]),
            Node::Branch(children) => {
                let (at, index) = locate(children, index);
                children[at].update(index, change)
            }
        };
        self.refresh();
        result
    }

    /// Inserts, and gives what must stand to the right of this child.
    fn insert(&mut self, index: usize, item: T, edge: Edge) -> Option<Child<T>> {
        let right = match Arc::make_mut(&mut self.node) {
            Node::Leaf(items) => {
                if items.len() == items.capacity() {
                    items.reserve_exact(GROWTH);
                }
                items.insert(index, item);
                split(items, edge).map(Node::Leaf)
            }
            Node::Branch(children) => {
                let (at, index) = locate(children, index);
                if let Some(right) = children[at].insert(index, item, edge) {
                    children.insert(at + 1, right);
                }
                split(children, edge).map(Node::Branch)
            }
        };
        let right = right.and_then(Child::new);
        self.len = self.len + 1 - right.as_ref().map_or(0, |right| right.len);
        self.refresh();
        right
    }

    fn remove(&mut self, index: usize) -> T {
        self.len -= 1;
        let item = match Arc::make_mut(&mut self.node) {
            Node::Leaf(items) => items.remove(index),
            Node::Branch(children) => {
                let (at, index) = locate(children, index);
                let item = children[at].remove(index);
                mend(children, at);
                item
            }
        };
        self.refresh();
        item
    }

    /// Takes in what stands to the right; gives back what is too much.
    fn join(&mut self, right: Child<T>) -> Option<Child<T>> {
        let all = self.len + right.len;
        let rest = match (Arc::make_mut(&mut self.node), Arc::unwrap_or_clone(right.node)) {
            (Node::Leaf(items), Node::Leaf(more)) => {
                items.extend(more);
                split(items, Edge::Inside).map(Node::Leaf)
            }
            (Node::Branch(children), Node::Branch(more)) => {
                children.extend(more);
                split(children, Edge::Inside).map(Node::Branch)
            }
            _ => unreachable!("all leaves have the same depth"),
        };
        let rest = rest.and_then(Child::new);
        self.len = all - rest.as_ref().map_or(0, |rest| rest.len);
        self.refresh();
        rest
    }
}

/// A child has lost an item.
fn mend<T: Item>(children: &mut Vec<Child<T>>, at: usize) {
    if children[at].len == 0 {
        children.remove(at);
    } else if children[at].node.width() < WIDTH_MIN && children.len() > 1 {
        let left = at.min(children.len() - 2);
        let right = children.remove(left + 1);
        if let Some(rest) = children[left].join(right) {
            children.insert(left + 1, rest);
        }
    }
}

impl<T: Item> Sequence<T> {
    /// An empty sequence.
    pub const fn new() -> Sequence<T> {
        Sequence { root: None }
    }
    /// The number of items.
    pub fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.len)
    }
    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
    /// The item at a place, counted from 0.
    pub fn get(&self, index: usize) -> Option<&T> {
        let (items, index) = self.root.as_ref()?.leaf_at(index);
        items.get(index)
    }
    /// The first item.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }
    /// The last item.
    pub fn last(&self) -> Option<&T> {
        self.get(self.len().checked_sub(1)?)
    }
    /// How many items stand before the first for which `is_before` is false, if it is true for some and then
    /// for none.
    pub fn partition_point(&self, is_before: impl FnMut(&T) -> bool) -> usize {
        self.partition_point_by(|_| Ordering::Equal, is_before)
    }
    /// The same, where keys decide most: `by_key` is `Less` if all items with that key stand before,
    /// `Greater` if none does, and `Equal` if `is_before` must be asked.
    pub fn partition_point_by(
        &self,
        by_key: impl Fn(T::Key) -> Ordering,
        mut is_before: impl FnMut(&T) -> bool,
    ) -> usize {
        let Some(root) = &self.root else {
            return 0;
        };
        let (mut node, mut passed) = (&*root.node, 0);
        loop {
            match node {
                Node::Leaf(items) => return passed + items.partition_point(is_before),
                Node::Branch(children) => {
                    // The last child needs no question.
                    let last = children.len() - 1;
                    let at = children[..last].partition_point(|child| match by_key(child.last) {
                        Ordering::Less => true,
                        Ordering::Equal => is_before(child.last_item()),
                        Ordering::Greater => false,
                    });
                    passed += children[..at].iter().map(|child| child.len).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }
    /// All items.
    pub fn iter(&self) -> Iter<'_, T> {
        self.range(0..self.len())
    }
    /// The items at these places, as far as there are any.
    pub fn range(&self, places: Range<usize>) -> Iter<'_, T> {
        let end = places.end.min(self.len());
        Iter {
            root: self.root.as_ref(),
            front: [].iter(),
            between: places.start.min(end)..end,
            back: [].iter(),
        }
    }
}

impl<T: Item> Sequence<T> {
    /// Changes the item at a place, if there is one.
    pub fn update<R>(&mut self, index: usize, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        // A place that is not there must not copy anything.
        let root = self.root.as_mut().filter(|root| index < root.len)?;
        Some(root.update(index, change))
    }
    /// Inserts an item before the one at `index`, or at the end.
    ///
    /// # Panics
    /// If the sequence has fewer than `index` items.
    pub fn insert(&mut self, index: usize, item: T) {
        assert!(index <= self.len(), "an insertion leaves no gap");
        let Some(root) = &mut self.root else {
            self.root = Child::new(Node::Leaf(vec![item]));
            return;
        };
        let edge = match index {
            index if index == root.len => Edge::Back,
            0 => Edge::Front,
            _ => Edge::Inside,
        };
        if let Some(right) = root.insert(index, item, edge) {
            let both = vec![root.clone(), right];
            self.root = Child::new(Node::Branch(both));
        }
    }
    /// Removes the item at a place.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        let root = self.root.as_mut().filter(|root| index < root.len)?;
        let item = root.remove(index);
        while let Node::Branch(children) = &*root.node
            && let [only] = &children[..]
        {
            *root = only.clone();
        }
        self.root = self.root.take().filter(|root| root.len > 0);
        Some(item)
    }
    /// Adds an item at the end.
    pub fn push_back(&mut self, item: T) {
        self.insert(self.len(), item);
    }
    /// Adds an item at the front.
    pub fn push_front(&mut self, item: T) {
        self.insert(0, item);
    }
    /// Removes the first item.
    pub fn pop_front(&mut self) -> Option<T> {
        self.remove(0)
    }
    /// Removes the last item.
    pub fn pop_back(&mut self) -> Option<T> {
        self.remove(self.len().checked_sub(1)?)
    }
    /// Removes the items at these places, as far as there are any: O(log n) for each, but never more than
    /// making a new sequence of those that stay.
    pub fn remove_range(&mut self, places: Range<usize>) {
        let end = places.end.min(self.len());
        let start = places.start.min(end);
        let (removed, kept) = (end - start, self.len() + start - end);
        if kept < removed.saturating_mul(4) {
            let before = self.range(0..start);
            *self = before.chain(self.range(end..self.len())).cloned().collect();
        } else {
            for _ in 0..removed {
                self.remove(start);
            }
        }
    }
}

impl<T: Item> Default for Sequence<T> {
    fn default() -> Sequence<T> {
        Sequence::new()
    }
}

impl<T: Item> FromIterator<T> for Sequence<T> {
    /// In linear time.
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Sequence<T> {
        fn gather<I, T: Item>(
            items: impl IntoIterator<Item = I>,
            node: impl Fn(Vec<I>) -> Node<T>,
        ) -> Vec<Child<T>> {
            let mut items = items.into_iter();
            let mut nodes = Vec::new();
            loop {
                let some: Vec<I> = items.by_ref().take(WIDTH_MAX).collect();
                if some.is_empty() {
                    return nodes;
                }
                nodes.extend(Child::new(node(some)));
            }
        }
        let mut level = gather(items, Node::Leaf);
        while level.len() > 1 {
            level = gather(mem::take(&mut level), Node::Branch);
        }
        Sequence { root: level.pop() }
    }
}

impl<T: Item> Extend<T> for Sequence<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push_back(item);
        }
    }
}

impl<T: Item + PartialEq> PartialEq for Sequence<T> {
    fn eq(&self, other: &Sequence<T>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
impl<T: Item + Eq> Eq for Sequence<T> {}

impl<T: Item + fmt::Debug> fmt::Debug for Sequence<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl<'a, T: Item> IntoIterator for &'a Sequence<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Items of a [`Sequence`], from both ends. Finds a leaf in O(log n), and then its items one after the other.
pub struct Iter<'a, T: Item> {
    root: Option<&'a Child<T>>,
    front: std::slice::Iter<'a, T>,
    /// The places whose leaves were not visited yet.
    between: Range<usize>,
    back: std::slice::Iter<'a, T>,
}

impl<T: Item> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Iter {
            root: self.root,
            front: self.front.clone(),
            between: self.between.clone(),
            back: self.back.clone(),
        }
    }
}

impl<'a, T: Item> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.front.next() {
                return Some(item);
            }
            if self.between.is_empty() {
                return self.back.next();
            }
            let (items, index) = self.root?.leaf_at(self.between.start);
            let items = &items[index..];
            let items = &items[..items.len().min(self.between.len())];
            self.between.start += items.len();
            self.front = items.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.front.len() + self.between.len() + self.back.len();
        (left, Some(left))
    }

    fn nth(&mut self, count: usize) -> Option<&'a T> {
        // Over what was not visited in one step.
        let after = count.checked_sub(self.front.len());
        let Some(after) = after else {
            return self.front.nth(count);
        };
        self.front = [].iter();
        let skipped = after.min(self.between.len());
        self.between.start += skipped;
        match after - skipped {
            0 => self.next(),
            rest => self.back.nth(rest),
        }
    }
}

impl<'a, T: Item> DoubleEndedIterator for Iter<'a, T> {
    fn next_back(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.back.next_back() {
                return Some(item);
            }
            if self.between.is_empty() {
                return self.front.next_back();
            }
            let (items, index) = self.root?.leaf_at(self.between.end - 1);
            let items = &items[..=index];
            let items = &items[items.len() - items.len().min(self.between.len())..];
            self.between.end -= items.len();
            self.back = items.iter();
        }
    }
}

impl<T: Item> ExactSizeIterator for Iter<'_, T> {}
impl<T: Item> FusedIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    /// Many have the same.
    impl Item for usize {
        type Key = usize;
        fn key(&self) -> usize {
            self / 1_000
        }
    }

    struct Draw(u64);

    impl Draw {
        fn new() -> Draw {
            let seed = std::env::var("ORDO_SEED").ok();
            let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7);
            println!("ORDO_SEED={seed}");
            Draw(seed)
        }
        fn below(&mut self, bound: usize) -> usize {
            self.0 = mix(self.0);
            (self.0 % bound as u64) as usize
        }
    }

    /// The depth of a node; checks what must hold of all below it.
    fn depth<T: Item<Key: PartialEq>>(child: &Child<T>) -> usize {
        let width = child.node.width();
        assert!((1..=WIDTH_MAX).contains(&width), "{width}");
        assert!(child.last == child.last_item().key(), "keys are up to date");
        match &*child.node {
            Node::Leaf(items) => {
                assert_eq!(child.len, items.len());
                1
            }
            Node::Branch(children) => {
                assert_eq!(child.len, children.iter().map(|child| child.len).sum());
                let depths: Vec<usize> = children.iter().map(depth).collect();
                assert!(depths.iter().all(|&other| other == depths[0]), "{depths:?}");
                depths[0] + 1
            }
        }
    }

    fn check(sequence: &Sequence<usize>, model: &[usize]) {
        assert!(sequence.iter().eq(model), "{sequence:?} is not {model:?}");
        assert!(sequence.iter().rev().eq(model.iter().rev()));
        let height = sequence.root.as_ref().map_or(0, depth);
        // Half of WIDTH_MIN is what nodes at the edges may bring the mean down to.
        let mut height_max = 2;
        while (WIDTH_MIN / 2).pow(height_max - 1) < model.len() {
            height_max += 1;
        }
        assert!(height as u32 <= height_max, "{height} for {}", model.len());
    }

    #[test]
    fn a_sequence_is_a_vector_that_old_versions_survive() {
        let mut draw = Draw::new();
        for sorted in [false, true] {
            let (mut sequence, mut model) = (Sequence::new(), Vec::new());
            let mut old = Vec::new();
            for step in 0..20_000 {
                let grows = draw.below(10) < if step / 4_000 % 2 == 0 { 8 } else { 2 };
                let item = draw.below(100_000);
                let place = draw.below(model.len() + 1);
                match (grows, draw.below(4)) {
                    (true, _) if sorted => {
                        let place = sequence.partition_point(|&other| other < item);
                        assert_eq!(place, model.partition_point(|&other| other < item));
                        let by_key = |key: usize| key.cmp(&item.key());
                        let found = sequence.partition_point_by(by_key, |&other| other < item);
                        assert_eq!(found, place);
                        sequence.insert(place, item);
                        model.insert(place, item);
                    }
                    (true, 0) => {
                        sequence.push_front(item);
                        model.insert(0, item);
                    }
                    (true, 1) => {
                        sequence.push_back(item);
                        model.push(item);
                    }
                    (true, _) => {
                        sequence.insert(place, item);
                        model.insert(place, item);
                    }
                    (false, 0) => {
                        assert_eq!(sequence.pop_back(), model.pop());
                    }
                    (false, 1) => {
                        let first = (!model.is_empty()).then(|| model.remove(0));
                        assert_eq!(sequence.pop_front(), first);
                    }
                    (false, 2) if !sorted && place < model.len() => {
                        sequence.update(place, |old| *old = item).unwrap();
                        model[place] = item;
                    }
                    (false, _) => {
                        let removed = (place < model.len()).then(|| model.remove(place));
                        assert_eq!(sequence.remove(place), removed);
                    }
                }
                assert_eq!(sequence.len(), model.len());
                assert_eq!(sequence.get(place), model.get(place));
                if step % 500 == 0 {
                    old.push((sequence.clone(), model.clone()));
                }
            }
            old.push((sequence, model));
            for (sequence, model) in &old {
                check(sequence, model);
                assert_eq!(model.iter().copied().collect::<Sequence<_>>(), *sequence);
            }
        }
    }

    #[test]
    fn what_grows_at_one_end_has_full_leaves() {
        let forward: Sequence<usize> = (0..10_000).collect();
        let (mut front, mut back) = (Sequence::new(), Sequence::new());
        (0..10_000).rev().for_each(|item| front.push_front(item));
        back.extend(0..10_000);
        for sequence in [&forward, &front, &back] {
            check(sequence, &(0..10_000).collect::<Vec<_>>());
            let root = sequence.root.as_ref().unwrap();
            // 10,000 / 32 = 313 leaves, 10 branches, the root.
            assert_eq!(depth(root), 3);
        }
    }

    #[test]
    fn ranges_are_those_of_a_slice() {
        let mut draw = Draw::new();
        let model: Vec<usize> = (0..3_000).collect();
        let sequence: Sequence<usize> = model.iter().copied().collect();
        for _ in 0..500 {
            let (start, end) = (draw.below(3_100), draw.below(3_100));
            let wanted = &model[start.min(end).min(3_000)..end.min(3_000)];
            let range = sequence.range(start..end);
            assert_eq!(range.len(), wanted.len());
            assert!(range.clone().eq(wanted));
            // From both ends in turn, with steps over some.
            let (mut range, mut rest) = (range, wanted.iter());
            loop {
                let (front, over) = (draw.below(2) == 0, draw.below(60));
                let (got, want) = match front {
                    true => (range.nth(over), rest.nth(over)),
                    false => (range.next_back(), rest.next_back()),
                };
                assert_eq!(got, want);
                assert_eq!(range.len(), rest.len());
                if want.is_none() {
                    break;
                }
            }
        }
    }

    #[test]
    fn runs_are_removed() {
        let mut draw = Draw::new();
        for _ in 0..200 {
            let mut model: Vec<usize> = (0..draw.below(2_000)).collect();
            let mut sequence: Sequence<usize> = model.iter().copied().collect();
            let kept = (sequence.clone(), model.clone());
            let (start, end) = (draw.below(2_100), draw.below(2_100));
            sequence.remove_range(start..end);
            let end = end.min(model.len());
            model.drain(start.min(end)..end);
            check(&sequence, &model);
            check(&kept.0, &kept.1);
        }
    }

    #[test]
    fn an_update_shares_all_but_a_path() {
        let items: Vec<Arc<usize>> = (0..100_000).map(Arc::new).collect();
        let sequence: Sequence<Arc<usize>> = items.iter().cloned().collect();
        let mut changed = sequence.clone();
        changed.insert(50_000, Arc::new(0));
        changed.remove(70_000);
        let copied = items.iter().filter(|item| Arc::strong_count(item) > 2);
        let copied = copied.count();
        assert!(copied <= 2 * WIDTH_MAX, "{copied} items were copied");
    }
}
