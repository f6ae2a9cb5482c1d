//! Where lines go: to standard output, or to the end of a file.

use super::cursor::{Cursor, Origin};
use super::lines::Format;
use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use url::Url;

/// About so many bytes wait before they are written.
const BUFFER_BYTES: usize = 256 << 10;
/// So many bytes of a file are looked through at a time for the beginning of its last line.
const WINDOW_BYTES: u64 = 64 << 10;

/// Where lines go.
pub enum Output {
    /// Standard output.
    Standard(BufWriter<io::Stdout>),
    /// A file, which nobody else appends to meanwhile.
    File {
        /// Where it is.
        path: PathBuf,
        /// At its end.
        writer: BufWriter<File>,
    },
}

impl Output {
    /// Standard output for `-`, a file for `file:///path`.
    pub fn open(to: &str) -> Result<Output> {
        if to == "-" {
            return Ok(Output::Standard(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())));
        }
        let url = Url::parse(to).ok().filter(|url| url.scheme() == "file");
        let path = url.and_then(|url| url.to_file_path().ok());
        let path = path.with_context(|| {
            format!("changes cannot be written to '{to}': use '-' for standard output, or file:///path")
        })?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(|| format!("{} cannot be opened", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another 'ordo export' appends to {}: stop that one first", path.display())
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{} cannot be locked", path.display()));
            }
        }
        Ok(Output::File { path, writer: BufWriter::with_capacity(BUFFER_BYTES, file) })
    }

    /// Where the lines that are there end, if there are any: that is where to go on. A last line that was not
    /// written to its end is cut off.
    ///
    /// # Errors
    /// The last line is none of an export, or it is in another form than `format`.
    pub fn resume(&mut self, format: Format) -> Result<Option<Origin>> {
        let Output::File { path, writer } = self else { return Ok(None) };
        let file = writer.get_mut();
        let length = file.seek(SeekFrom::End(0))?;
        let end = line_end_before(file, length)?;
        if end < length {
            file.set_len(end).with_context(|| format!("{} cannot be cut", path.display()))?;
        }
        file.seek(SeekFrom::Start(end))?;
        if end == 0 {
            return Ok(None);
        }
        let begin = line_end_before(file, end - 1)?;
        file.seek(SeekFrom::Start(begin))?;
        let mut line = vec![0; (end - begin) as usize];
        file.read_exact(&mut line)?;
        origin_of(&line, format, path, begin).map(Some)
    }

    /// Writes a line.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.writer().write_all(line)
    }

    /// Hands over what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// Brings what was written to the disk, where it goes there.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        match self {
            Output::Standard(_) => Ok(()),
            Output::File { writer, .. } => writer.get_ref().sync_data(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Output::Standard(writer) => writer,
            Output::File { writer, .. } => writer,
        }
    }
}

/// The place behind the last end of a line before `end`; 0 if there is none.
fn line_end_before(file: &mut File, end: u64) -> io::Result<u64> {
    let mut until = end;
    let mut window = Vec::new();
    while until > 0 {
        let from = until.saturating_sub(WINDOW_BYTES);
        window.resize((until - from) as usize, 0);
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut window)?;
        if let Some(place) = window.iter().rposition(|&byte| byte == b'\n') {
            return Ok(from + place as u64 + 1);
        }
        until = from;
    }
    Ok(0)
}

/// Where to go on behind a line.
fn origin_of(line: &[u8], format: Format, path: &Path, begin: u64) -> Result<Origin> {
    let strange = || {
        format!(
            "the last line of {}, at byte {begin}, is none that 'ordo export' has written: cut the file \
             there, or give another one",
            path.display()
        )
    };
    let said: Json = serde_json::from_slice(line).with_context(strange)?;
    let is_event = said.get("specversion").is_some();
    // A snapshot that was interrupted begins again.
    let origin = match said.get("cursor") {
        Some(Json::String(cursor)) => Origin::Behind(cursor.parse::<Cursor>().with_context(strange)?),
        Some(Json::Null) => Origin::Start,
        None if is_event => Origin::Start,
        _ => bail!(strange()),
    };
    let (there, name) = match is_event {
        true => (Format::Cloudevents, "cloudevents"),
        false => (Format::Json, "json"),
    };
    if there != format {
        bail!("the lines of {} are in another form: give --format {name}, or another file", path.display());
    }
    Ok(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(content: &[u8], format: Format) -> (Result<Option<Origin>>, Vec<u8>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("changes");
        std::fs::write(&path, content).expect("written");
        let mut output = Output::open(&format!("file://{}", path.display())).expect("opened");
        let origin = output.resume(format);
        if origin.is_ok() {
            output.write(b"more\n").and_then(|()| output.sync()).expect("written");
        }
        (origin, std::fs::read(path).expect("read"))
    }

    #[test]
    fn a_file_goes_on_behind_its_last_whole_line() {
        let line = r#"{"cursor":"7-2-0000000000000009"}"#;
        let cursor = Cursor { epoch: 7, place: 2, digest: 9 };
        let long = format!("{{\"filler\":\"{}\",\"cursor\":null}}\n", "x".repeat(3 * WINDOW_BYTES as usize));
        let event = "{\"specversion\":\"1.0\"}\n";
        let formats = [Format::Json, Format::Cloudevents];
        for (whole, torn, origin) in [
            (String::new(), "", None),
            (String::new(), "{\"torn", None),
            (format!("{{}}\n{line}\n"), "", Some(Origin::Behind(cursor))),
            (format!("{line}\n"), "{\"torn", Some(Origin::Behind(cursor))),
            (format!("{line}\n{long}"), "{\"torn", Some(Origin::Start)),
            (format!("{line}\n{event}"), "", Some(Origin::Start)),
        ] {
            let of_file = formats[usize::from(whole.ends_with(event))];
            let (found, after) = resumed(format!("{whole}{torn}").as_bytes(), of_file);
            assert_eq!(found.expect("it is resumed"), origin);
            assert_eq!(after, format!("{whole}more\n").as_bytes());
            let other = formats[usize::from(of_file == Format::Json)];
            let (found, after) = resumed(whole.as_bytes(), other);
            match origin {
                None => assert!(found.is_ok()),
                Some(_) => {
                    let error = found.expect_err("another form").to_string();
                    assert!(error.contains("another form: give --format"), "{error}");
                    assert_eq!(after, whole.as_bytes());
                }
            }
        }
    }

    #[test]
    fn a_file_of_something_else_is_left_as_it_is() {
        for content in ["text\n", "{}\n", "{\"cursor\":7}\n", "{\"cursor\":\"7-2\"}\n", "\0\0\0\n"] {
            let (found, after) = resumed(content.as_bytes(), Format::Json);
            let error = format!("{:#}", found.expect_err(content));
            assert!(error.contains("at byte 0, is none"), "{error}");
            assert_eq!(after, content.as_bytes());
        }
    }

    #[test]
    fn two_exporters_do_not_append_to_one_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let url = format!("file://{}", dir.path().join("changes").display());
        let first = Output::open(&url).expect("opened");
        let error = Output::open(&url).err().expect("a refusal").to_string();
        assert!(error.contains("another 'ordo export'"), "{error}");
        drop(first);
        Output::open(&url).expect("opened");
        for other in ["s3://bucket", "changes", "http://x/y"] {
            assert!(Output::open(other).is_err(), "{other}");
        }
    }
}
