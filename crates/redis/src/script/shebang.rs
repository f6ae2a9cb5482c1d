//! The first line of a script: `#!lua flags=...`.

use super::convert::line;
use txn::Reply;

/// What a script's first line declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shebang {
    /// There is such a line.
    pub declared: bool,
    /// The script does not write.
    pub no_writes: bool,
}

/// Reads the first line. Returns the source to compile: what follows, with the line's end, so that lines count the same.
pub(super) fn parse(body: &[u8]) -> Result<(Shebang, &[u8]), Reply> {
    if !body.starts_with(b"#!") {
        return Ok((Shebang::default(), body));
    }
    let Some(end) = body.iter().position(|&byte| byte == b'\n') else {
        return Err(Reply::error("ERR Invalid script shebang"));
    };
    let mut words = body[..end]
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(Reply::error_owned(format!(
            "ERR Unexpected engine in script shebang: {}",
            line(engine)
        )));
    }
    let mut shebang = Shebang {
        declared: true,
        no_writes: false,
    };
    for option in words {
        let Some(flags) = option.strip_prefix(b"flags=") else {
            return Err(Reply::error_owned(format!(
                "ERR Unknown lua shebang option: {}",
                line(option)
            )));
        };
        for flag in flags
            .split(|&byte| byte == b',')
            .filter(|flag| !flag.is_empty())
        {
            match flag {
                b"no-writes" => shebang.no_writes = true,
                // Nothing here depends on these: memory is checked at admission, and every key is in reach everywhere.
                b"allow-oom" | b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
                _ => {
                    let text = format!("ERR Unexpected flag in script shebang: {}", line(flag));
                    return Err(Reply::error_owned(text));
                }
            }
        }
    }
    Ok((shebang, &body[end..]))
}
