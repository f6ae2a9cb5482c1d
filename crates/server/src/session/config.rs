//! CONFIG and its subcommands.

use super::ThreadContext;
use crate::config::{Change, Config, Kind, OLD_NAMES, SETTINGS, foreign};
use redis_surface::{errors, pattern};
use txn::{Blob, Reply};

/// CONFIG RESETSTAT.
pub(super) fn reset_stat(thread: &ThreadContext<'_>) -> Reply {
    thread.shared.reset_totals();
    Reply::OK
}

/// CONFIG REWRITE.
pub(super) fn rewrite(thread: &ThreadContext<'_>) -> Reply {
    match thread.shared.settings.now().rewrite_file() {
        Ok(()) => Reply::OK,
        Err(error) => {
            tracing::warn!("CONFIG REWRITE failed: {error}");
            Reply::error_owned(format!("ERR {error}"))
        }
    }
}

/// Redis's name for whether there is a cluster, which the settings of a cluster tell here.
const CLUSTER_ENABLED: &str = "cluster-enabled";

/// CONFIG GET. A setting is told under each of its names that matches.
pub(super) fn get(thread: &ThreadContext<'_>, patterns: &[Blob]) -> Reply {
    let config = thread.shared.settings.now();
    let matches = |name: &str| {
        patterns.iter().any(|word| pattern::matches(&word.to_ascii_lowercase(), name.as_bytes()))
    };
    let shown = SETTINGS.iter().filter(|setting| setting.kind != Kind::Users);
    let names = shown.map(|setting| (setting.name, setting.name));
    let matching = names
        .chain(OLD_NAMES.iter().copied())
        .filter(|(name, _)| matches(name))
        .filter_map(|(name, now)| Some((name, Config::setting(now)?)));
    let own = matching.map(|(name, setting)| (Reply::bulk(name), Reply::bulk((setting.get)(&config))));
    let is_member = config.cluster.is_some();
    let cluster = matches(CLUSTER_ENABLED).then(|| {
        let enabled = if is_member { "yes" } else { "no" };
        (Reply::bulk(CLUSTER_ENABLED), Reply::bulk(enabled))
    });
    let foreign = foreign::Parameter::all().filter(|(name, _)| matches(name));
    let foreign =
        foreign.map(|(name, parameter)| (Reply::bulk(name), Reply::bulk(parameter.get(&config).as_bytes())));
    Reply::Map(own.chain(cluster).chain(foreign).collect())
}

/// Whether CONFIG SET with these words sets a setting.
pub(super) fn names(argv: &[Blob], setting: &str) -> bool {
    let names = argv.iter().skip(2).step_by(2);
    names.into_iter().any(|name| super::is_word(name, setting))
}

/// CONFIG SET: all pairs, or none.
pub(super) fn set(thread: &ThreadContext<'_>, pairs: &[Blob]) -> Reply {
    let (pairs, odd) = pairs.as_chunks::<2>();
    if !odd.is_empty() {
        return errors::SYNTAX;
    }
    let result = thread.shared.settings.change(|config: &mut Config| -> Result<(), Reply> {
        let mut seen: Vec<&str> = Vec::new();
        for [name, value] in pairs {
            let name = String::from_utf8_lossy(name);
            let value = String::from_utf8_lossy(value);
            let setting = Config::setting(&name);
            let parameter = foreign::Parameter::named(&name);
            let known = setting.map(|setting| setting.name);
            let Some(known) = known.or(parameter.map(|parameter| parameter.name)) else {
                return Err(Reply::error_owned(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                )));
            };
            let failed = |why: &str| {
                Reply::error_owned(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{known}') - {why}"
                ))
            };
            if seen.contains(&known) {
                return Err(failed("duplicate parameter"));
            }
            seen.push(known);
            if let Some(parameter) = parameter {
                parameter.set(config, &value).map_err(|problem| failed(&problem))?;
                continue;
            }
            let Some(setting) = setting else { continue };
            // As it is already: whoever says so again is not told that it can't be.
            if setting.change == Change::AtStart && (setting.get)(config) == value.to_ascii_lowercase() {
                continue;
            }
            if setting.change == Change::AtStart {
                return Err(failed("can't set immutable config: change it at the next start of the server"));
            }
            if foreign::is_without_effect(known, &value).map_err(|problem| failed(&problem))? {
                tracing::info!("CONFIG SET {known} has no effect: {}", setting.help);
                continue;
            }
            (setting.set)(config, &value).map_err(|problem| failed(&problem))?;
        }
        // Also where a file's name is the same: what is in it may have changed.
        if let Some(name) = seen.iter().find(|name| name.starts_with("tls-")) {
            thread.shared.tls.reread(config).map_err(|error| {
                Reply::error_owned(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - Unable to update \
                         TLS configuration. {error}"
                ))
            })?;
        }
        if seen.iter().any(|name| name.starts_with("maxmemory")) {
            thread.shared.memory_settings_changed(config);
        }
        Ok(())
    });
    match result {
        Ok(()) => {
            let config = thread.shared.settings.now();
            thread.shared.look_at_settings(&config);
            Reply::OK
        }
        Err(error) => error,
    }
}
