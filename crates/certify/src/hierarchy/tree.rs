//! The tree of validators, as data.

use std::collections::BTreeSet;
use std::fmt;
use txn::PartitionId;

/// The tree of validators. Each validator is a group of the substrate, and its number is the group's.
///
/// Guarantees:
/// 1. The leaf validators are the first ones: leaf `n` validates partition `n`.
/// 2. Every validator but the root has one parent, an inner validator with a higher number. So there are no
///    cycles, and the root is the last validator.
/// 3. Every inner validator has two children or more. A tree of one level is one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The parents of all validators but the root.
    parents: Vec<PartitionId>,
    /// The leaves below each validator; a leaf is below itself.
    leaves_below: Vec<BTreeSet<PartitionId>>,
    leaves: u16,
}

/// What is wrong with the description of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// There is no leaf.
    NoLeaf,
    /// The parent of this validator is no inner validator with a higher number.
    BadParent(PartitionId),
    /// This inner validator has fewer than two children.
    FewChildren(PartitionId),
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::NoLeaf => {
                f.write_str("the tree has no leaf validator: give it one for each partition")
            }
            TreeError::BadParent(PartitionId(of)) => write!(
                f,
                "the parent of validator {of} is no inner validator with a higher number: number the leaves \
                 first, then each inner validator behind its children"
            ),
            TreeError::FewChildren(PartitionId(of)) => {
                write!(f, "inner validator {of} has fewer than two children: let its child take its place")
            }
        }
    }
}

impl Tree {
    /// A tree of so many leaves. `parents` names the parent of each validator in the order of their numbers,
    /// leaves first. The last validator, the root, has none.
    ///
    /// # Errors
    /// A guarantee of the type would not hold.
    pub fn new(leaves: u16, parents: &[u16]) -> Result<Tree, TreeError> {
        let parents: Vec<PartitionId> = parents.iter().copied().map(PartitionId).collect();
        let validators = parents.len() as u16 + 1;
        if leaves == 0 || leaves > validators {
            return Err(TreeError::NoLeaf);
        }
        let mut leaves_below = vec![BTreeSet::new(); usize::from(validators)];
        let mut children = vec![0; usize::from(validators)];
        for (child, &parent) in (0..).zip(&parents) {
            if parent.0 <= child || parent.0 < leaves || parent.0 >= validators {
                return Err(TreeError::BadParent(PartitionId(child)));
            }
            children[usize::from(parent.0)] += 1;
        }
        if let Some(inner) = (leaves..validators).find(|&inner| children[usize::from(inner)] < 2) {
            return Err(TreeError::FewChildren(PartitionId(inner)));
        }
        let mut tree = Tree { parents, leaves_below: Vec::new(), leaves };
        for leaf in tree.leaves() {
            for above in tree.path(leaf) {
                leaves_below[usize::from(above.0)].insert(leaf);
            }
        }
        tree.leaves_below = leaves_below;
        Ok(tree)
    }

    /// A tree of one leaf.
    pub fn leaf() -> Tree {
        Tree { parents: Vec::new(), leaves_below: vec![BTreeSet::from([PartitionId(0)])], leaves: 1 }
    }

    /// The number of leaves, which is that of partitions.
    pub fn partitions(&self) -> u16 {
        self.leaves
    }

    /// All leaf validators.
    pub fn leaves(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.leaves).map(PartitionId)
    }

    /// All inner validators.
    pub fn inners(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (self.leaves..self.groups()).map(PartitionId)
    }

    /// The number of validators, each of which is a group.
    pub fn groups(&self) -> u16 {
        self.parents.len() as u16 + 1
    }

    /// Whether a validator is a leaf.
    pub fn is_leaf(&self, validator: PartitionId) -> bool {
        validator.0 < self.leaves
    }

    /// The validator above another one. The root has none.
    pub fn parent(&self, validator: PartitionId) -> Option<PartitionId> {
        self.parents.get(usize::from(validator.0)).copied()
    }

    /// The validators from a validator down to the leaf that is farthest below it, itself not counted.
    pub fn height(&self, validator: PartitionId) -> usize {
        let depth = |below: PartitionId| self.path(below).position(|above| above == validator);
        self.leaves_below(validator).iter().filter_map(|&leaf| depth(leaf)).max().unwrap_or(0)
    }

    /// The height of the root.
    pub fn height_of_root(&self) -> usize {
        self.height(PartitionId(self.groups() - 1))
    }

    /// The leaves below a validator. A leaf is below itself.
    pub fn leaves_below(&self, validator: PartitionId) -> &BTreeSet<PartitionId> {
        &self.leaves_below[usize::from(validator.0)]
    }

    /// A validator, and all above it, from there to the root.
    pub(super) fn path(&self, from: PartitionId) -> impl Iterator<Item = PartitionId> {
        std::iter::successors(Some(from), |&validator| self.parent(validator))
    }

    /// The validator that decides on a transaction with these participants: the lowest one above them all.
    pub fn decider(&self, participants: &BTreeSet<PartitionId>) -> Option<PartitionId> {
        let first = *participants.first()?;
        self.path(first).find(|&above| participants.is_subset(self.leaves_below(above)))
    }

    /// The children of an inner validator that have participants of a transaction below them.
    pub fn children_of(
        &self,
        validator: PartitionId,
        participants: &BTreeSet<PartitionId>,
    ) -> BTreeSet<PartitionId> {
        let below = participants.iter().copied();
        below
            .filter_map(|leaf| self.path(leaf).find(|&above| self.parent(above) == Some(validator)))
            .collect()
    }

    /// Whether a validator is below the decider of a transaction with these participants, and above one of
    /// them: it passes what it knows to its parent.
    pub fn passes_on(&self, validator: PartitionId, participants: &BTreeSet<PartitionId>) -> bool {
        let below = self.leaves_below(validator);
        !participants.is_subset(below) && !participants.is_disjoint(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(leaves: &[u16]) -> BTreeSet<PartitionId> {
        leaves.iter().copied().map(PartitionId).collect()
    }

    #[test]
    fn a_description_is_checked() {
        for (leaves, parents, error) in [
            (0, &[][..], TreeError::NoLeaf),
            (3, &[2], TreeError::NoLeaf),
            (2, &[], TreeError::NoLeaf),
            (2, &[1, 2], TreeError::BadParent(PartitionId(0))),
            (2, &[2, 3], TreeError::BadParent(PartitionId(1))),
            (2, &[2, 3, 3], TreeError::FewChildren(PartitionId(2))),
            (3, &[3, 3, 4, 3], TreeError::BadParent(PartitionId(3))),
        ] {
            assert_eq!(Tree::new(leaves, parents), Err(error), "{leaves} {parents:?}");
        }
        assert_eq!(Tree::new(1, &[]), Ok(Tree::leaf()));
    }

    #[test]
    fn a_transaction_is_decided_by_the_lowest_validator_above_it() {
        // 0, 1 and 2 below 4; 4 and 3 below 5.
        let tree = Tree::new(4, &[4, 4, 4, 5, 5]).expect("a tree");
        for (participants, decider) in
            [(&[2][..], 2), (&[0, 1], 4), (&[0, 1, 2], 4), (&[0, 3], 5), (&[0, 1, 2, 3], 5), (&[3], 3)]
        {
            assert_eq!(tree.decider(&set(participants)), Some(PartitionId(decider)), "{participants:?}");
        }
        assert_eq!([3, 4, 5].map(|validator| tree.height(PartitionId(validator))), [0, 1, 2]);
        assert_eq!(tree.children_of(PartitionId(5), &set(&[0, 1, 3])), set(&[4, 3]));
        assert_eq!(tree.children_of(PartitionId(4), &set(&[0, 1, 3])), set(&[0, 1]));
        assert!(tree.passes_on(PartitionId(4), &set(&[0, 3])) && !tree.passes_on(PartitionId(4), &set(&[3])));
        assert!(
            !tree.passes_on(PartitionId(4), &set(&[0, 1])) && !tree.passes_on(PartitionId(5), &set(&[0]))
        );
    }
}
