//! The data directory: whether it can be used, and how fast its disk is.

use super::Finding;
use rustix::fs::{statfs, statvfs};
use server::disk::RealDisk;
use server::runtime::FsyncPolicy;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much is written to learn how fast the disk is.
const WRITTEN_BYTES: usize = 64 << 20;
/// In parts of so many bytes.
const PART_BYTES: usize = 1 << 20;
/// How often a small write is synced, and how many bytes it has.
const SYNCS: usize = 64;
const SYNCED_BYTES: usize = 4096;
/// However slow the disk is, each of the two trials ends after this.
const TRIAL_MAX: Duration = Duration::from_secs(5);

/// Below this, checkpoints and recovery take long.
const SPEED_MIN: f64 = 50e6;
/// A sync that takes longer is what every write waits for.
const SYNC_MAX: Duration = Duration::from_millis(10);
/// One that takes longer lets clients time out, and leaders fall.
const SYNC_WORST_MAX: Duration = Duration::from_millis(200);
/// With less room, the next checkpoints may not fit.
const ROOM_MIN_BYTES: u64 = 1 << 30;

/// File systems that forget everything when the machine stops, by the numbers that Linux gives them.
const FORGETFUL: [(i64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
/// File systems over a network.
const REMOTE: [(i64, &str); 4] =
    [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB2"), (0x6573_5546, "FUSE")];

/// Checks the data directory.
pub fn check(dir: &Path, fsync: FsyncPolicy) -> Vec<Finding> {
    if let Err(error) = RealDisk::look_at(dir) {
        return vec![Finding::failed("directory", error.to_string(), "")];
    }
    let place = match existing(dir) {
        Ok(place) => place,
        Err(error) => {
            let found = format!("{} cannot be looked at: {error}", dir.display());
            let advice =
                "let the user that runs Ordo enter the directories above, or give another with --dir";
            return vec![Finding::failed("directory", found, advice)];
        }
    };
    let mut findings = vec![directory(dir, &place)];
    findings.extend(file_system(&place));
    match trial(&place, fsync) {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(Finding::failed(
            "disk-speed",
            format!("no file can be written in {}: {error}", place.display()),
            "let the user that runs Ordo write there",
        )),
    }
    findings
}

/// The directory, or the nearest one above it that exists.
///
/// # Errors
/// A directory above may not be entered: nobody knows whether there is something below it.
fn existing(dir: &Path) -> io::Result<PathBuf> {
    let mut place = std::path::absolute(dir)?;
    loop {
        match place.try_exists() {
            Ok(true) => return Ok(place),
            Err(error) if error.kind() != io::ErrorKind::NotADirectory => return Err(error),
            _ => _ = place.pop(),
        }
    }
}

fn directory(dir: &Path, place: &Path) -> Finding {
    let shown = dir.display();
    let found = match std::fs::metadata(place) {
        Ok(found) => found,
        Err(error) => return Finding::failed("directory", format!("{shown}: {error}"), ""),
    };
    if !found.is_dir() {
        return Finding::failed(
            "directory",
            format!("{} is no directory", place.display()),
            "give another one",
        );
    }
    if std::path::absolute(dir).is_ok_and(|dir| dir != place) {
        return Finding::ok("directory", format!("{shown} does not exist yet: the first start makes it"));
    }
    permissions(dir, &found, rustix::process::geteuid().as_raw())
}

/// Who may do what with the directory.
fn permissions(dir: &Path, found: &Metadata, user: u32) -> Finding {
    let (shown, mode) = (dir.display(), found.mode() & 0o777);
    if found.uid() != user {
        return Finding::warning(
            "directory",
            format!("{shown} belongs to user {}, and this is user {user}", found.uid()),
            "run 'ordo doctor' as the user that will run the server, and give the directory to that user",
        );
    }
    match mode & 0o077 {
        0 => Finding::ok("directory", format!("{shown} is for its owner alone")),
        _ => Finding::warning(
            "directory",
            format!("{shown} has the mode {mode:o}: other users of this machine can look into it"),
            format!("chmod 700 {shown}"),
        ),
    }
}

fn file_system(place: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(found) = statfs(place) {
        let number = found.f_type & 0xffff_ffff;
        let among = |known: &[(i64, &'static str)]| {
            known.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
        };
        if let Some(name) = among(&FORGETFUL) {
            findings.push(Finding::warning(
                "file-system",
                format!("{} is on {name}, which is memory", place.display()),
                "all data is gone when the machine stops: give a directory on a disk",
            ));
        } else if let Some(name) = among(&REMOTE) {
            findings.push(Finding::warning(
                "file-system",
                format!("{} is on {name}, over a network or another process", place.display()),
                "use a local disk: what such a file system does at a sync and at a lock is up to its server",
            ));
        } else {
            findings.push(Finding::ok("file-system", "on this machine"));
        }
    }
    if let Ok(found) = statvfs(place) {
        findings.push(room(found.f_bavail.saturating_mul(found.f_frsize)));
    }
    findings
}

fn room(bytes: u64) -> Finding {
    let found = format!("{:.1} GB free", bytes as f64 / 1e9);
    match bytes < ROOM_MIN_BYTES {
        true => Finding::warning(
            "disk-room",
            found,
            "a server keeps two checkpoints and the log behind them: give three times the size of the data",
        ),
        false => Finding::ok("disk-room", found),
    }
}

/// Writes to a file of its own, which goes with the end.
fn trial(place: &Path, fsync: FsyncPolicy) -> io::Result<[Finding; 2]> {
    let mut file = tempfile::tempfile_in(place)?;
    let speed = speed(&mut file)?;
    let mut syncs = Vec::new();
    let began = Instant::now();
    while syncs.len() < SYNCS && began.elapsed() < TRIAL_MAX {
        file.write_all(&[7; SYNCED_BYTES])?;
        let began = Instant::now();
        file.sync_data()?;
        syncs.push(began.elapsed());
    }
    Ok([of_speed(speed), of_syncs(syncs, fsync)])
}

/// Bytes in a second.
fn speed(file: &mut File) -> io::Result<f64> {
    // Numbers that no disk can make smaller.
    let mut state = 1_u64;
    let part: Vec<u8> = (0..PART_BYTES / 8)
        .flat_map(|_| {
            state = txn::hash::mix(state);
            state.to_le_bytes()
        })
        .collect();
    let (mut written, began) = (0, Instant::now());
    while written < WRITTEN_BYTES && began.elapsed() < TRIAL_MAX {
        file.write_all(&part)?;
        written += part.len();
    }
    file.sync_data()?;
    Ok(written as f64 / began.elapsed().as_secs_f64().max(1e-6))
}

fn of_speed(speed: f64) -> Finding {
    let found = format!("{:.0} MB/s are written", speed / 1e6);
    match speed < SPEED_MIN {
        true => Finding::warning(
            "disk-speed",
            found,
            format!(
                "checkpoints and copies of replicas take long below {:.0} MB/s: use a faster disk",
                SPEED_MIN / 1e6
            ),
        ),
        false => Finding::ok("disk-speed", found),
    }
}

fn of_syncs(mut syncs: Vec<Duration>, fsync: FsyncPolicy) -> Finding {
    syncs.sort();
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (Some(&median), Some(&worst)) = (syncs.get(syncs.len() / 2), syncs.last()) else {
        return Finding::failed("disk-sync", "no sync has ended", "use another disk");
    };
    let found = format!(
        "a sync takes {:.2} ms (median of {}), {:.2} ms at worst",
        ms(median),
        syncs.len(),
        ms(worst)
    );
    let waits = match fsync {
        FsyncPolicy::Always => "with appendfsync always each write waits for one",
        _ => "a server syncs at least once a second, and checkpoints wait for it",
    };
    match median > SYNC_MAX || worst > SYNC_WORST_MAX {
        true => Finding::warning(
            "disk-sync",
            found,
            format!("{waits}: use a disk with a protected cache, and no other load on it"),
        ),
        false => Finding::ok("disk-sync", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn grade_of(findings: &[Finding], check: &str) -> Option<Grade> {
        findings.iter().find(|finding| finding.check == check).map(|finding| finding.grade)
    }

    #[test]
    fn a_directory_is_tried_and_left_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        let findings = check(&data, FsyncPolicy::Always);
        assert_eq!(grade_of(&findings, "directory"), Some(Grade::Ok), "{findings:?}");
        assert!(findings.iter().any(|finding| finding.check == "disk-sync"), "{findings:?}");
        assert!(!data.exists());
        // A path that cannot be looked at is not one that is not there.
        let hidden = check(&dir.path().join("x".repeat(300)), FsyncPolicy::Always);
        assert_eq!(grade_of(&hidden, "directory"), Some(Grade::Failed), "{hidden:?}");
        let taken = RealDisk::open(&data).expect("opened");
        let findings = check(&data, FsyncPolicy::Always);
        assert_eq!(grade_of(&findings, "directory"), Some(Grade::Failed), "{findings:?}");
        drop(taken);
        let before = std::fs::read_dir(&data).expect("a directory").count();
        assert_eq!(grade_of(&check(&data, FsyncPolicy::Always), "directory"), Some(Grade::Ok));
        assert_eq!(std::fs::read_dir(&data).expect("a directory").count(), before);
        std::fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("ours");
        assert_eq!(grade_of(&check(&data, FsyncPolicy::Always), "directory"), Some(Grade::Warning));
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert_eq!(grade_of(&check(&file, FsyncPolicy::Always), "directory"), Some(Grade::Failed));
    }

    #[test]
    fn slow_disks_full_disks_and_foreign_directories_are_warned_of() {
        let ms = Duration::from_millis;
        assert_eq!(of_syncs(vec![ms(1); 9], FsyncPolicy::Always).grade, Grade::Ok);
        assert_eq!(of_syncs(vec![ms(11); 9], FsyncPolicy::Always).grade, Grade::Warning);
        assert_eq!(of_syncs(vec![ms(1), ms(1), ms(300)], FsyncPolicy::Always).grade, Grade::Warning);
        assert_eq!(of_syncs(Vec::new(), FsyncPolicy::Always).grade, Grade::Failed);
        assert_eq!((of_speed(49e6).grade, of_speed(51e6).grade), (Grade::Warning, Grade::Ok));
        assert_eq!((room(1 << 29).grade, room(1 << 31).grade), (Grade::Warning, Grade::Ok));
        let dir = tempfile::tempdir().expect("a directory");
        let found = std::fs::metadata(dir.path()).expect("there");
        let finding = permissions(dir.path(), &found, found.uid() + 1);
        assert!(finding.grade == Grade::Warning && finding.found.contains("belongs to user"), "{finding:?}");
    }
}
