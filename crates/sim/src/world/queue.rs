//! What is to happen, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events by their time; those of one time in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.number) == (other.at_ns, other.number)
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), added: 0 }
    }
    pub(crate) fn add(&mut self, at_ns: u64, event: E) {
        self.added += 1;
        self.heap.push(Reverse(Entry { at_ns, number: self.added, event }));
    }
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }
    /// When the next event is due.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_added() {
        let mut queue = Queue::new();
        for (at_ns, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (5, 'e')] {
            queue.add(at_ns, event);
        }
        assert_eq!(queue.next_at_ns(), Some(1));
        let all: String = std::iter::from_fn(|| queue.next().map(|(_, event)| event)).collect();
        assert_eq!(all, "abcde");
    }
}
