//! Files that come whole, or don't.

use super::*;
use crate::cluster::fixtures::{P0, write};
use sim::disk::VirtualDisk;

#[test]
fn a_file_that_is_no_checkpoint_is_not_kept() {
    let (given, disk) = (VirtualDisk::new(1), VirtualDisk::new(2));
    write(&given, 3, &[P0]);
    let first = Piece { partition: P0, epoch: Epoch(3), offset: 0 };
    let (_, bytes) = read_piece(&given, first).expect("a checkpoint");
    let sound = Whole { next: Position::FIRST, digest: 3 };
    let mut turned = bytes.clone();
    turned[bytes.len() / 2] ^= 1;
    let other = Whole { digest: 4, ..sound };
    let cut = bytes[..bytes.len() - 1].to_vec();
    for (bytes, whole) in [(turned, sound), (cut, sound), (bytes.clone(), other)] {
        let written = write_piece(&disk, first, &bytes, Some(whole));
        let error = written.expect_err("it is none");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert_eq!(disk.list().expect("a list"), [""; 0]);
    }
    write_piece(&disk, first, &bytes, Some(sound)).expect("it is one");
    assert_eq!(disk.list().expect("a list"), [file_name(P0, Epoch(3))]);
}
