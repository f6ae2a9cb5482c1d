use super::*;
use crate::codec::inline;
use crate::execute::Memory;
use crate::table;
use txn::{Args, Blob, Reply};

fn words(line: &str) -> Args {
    inline::split(line.as_bytes()).expect("balanced quotes")
}

/// A user made by these rules.
fn user(rules: &str) -> User {
    let mut user = User::new(false);
    user.apply_all(&words(rules), false).unwrap_or_else(|error| panic!("{rules}: {error:?}"));
    user
}

fn description(rules: &str) -> String {
    String::from_utf8(user(rules).description()).expect("ASCII")
}

fn refused(rules: &str) -> String {
    let error = User::new(false).apply_all(&words(rules), false).expect_err(rules);
    match error.reply() {
        Reply::Error(text) => text.into_owned(),
        other => panic!("{other:?}"),
    }
}

/// What a user is told about a command.
fn told(user: &User, line: &str) -> String {
    match check::dry_run(user, &words(line)) {
        Reply::Status(text) => text.into_owned(),
        Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// The descriptions that Redis 7.0.15 gives for the same rules.
#[test]
fn descriptions_are_those_of_redis() {
    for (rules, want) in [
        ("", "off resetchannels -@all"),
        ("on nopass +@all ~* &*", "on nopass ~* &* +@all"),
        ("reset", "off sanitize-payload resetchannels -@all"),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        ("on nopass resetchannels &foo +@all", "on nopass resetchannels &foo +@all"),
        ("%R~foo %W~foo %RW~bar", "off ~foo ~bar resetchannels -@all"),
        ("%R~a %rw~b %W~c ~a", "off ~a ~b %W~c resetchannels -@all"),
        ("&a &b &a", "off resetchannels &a &b -@all"),
        ("+@all -client|kill", "off resetchannels +@all -client|kill"),
        ("+@all -memory|doctor -memory", "off resetchannels +@all -memory"),
        ("+memory|doctor", "off resetchannels -@all +memory|doctor"),
        ("+memory|doctor +memory", "off resetchannels -@all +memory"),
        ("+@all +client|id", "off resetchannels +@all"),
        ("-@all +acl +config -config|set", "off resetchannels -@all +acl +config -config|set"),
        ("-@all +select|0 +select|0 +SELECT|1", "off resetchannels -@all +select|0 +select|1"),
        ("+@all -debug +debug|digest", "off resetchannels +@all -debug +debug|digest"),
        (
            "(+get ~a) ( %W~b +set )",
            "off resetchannels -@all (~a resetchannels -@all +get) (%W~b resetchannels -@all +set)",
        ),
        ("(+get ~a) clearselectors on", "on resetchannels -@all"),
        ("()", "off resetchannels -@all (resetchannels -@all)"),
        (">a <a", "off resetchannels -@all"),
        (
            "nopass >a",
            "off #ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb resetchannels -@all",
        ),
    ] {
        assert_eq!(description(rules), want, "{rules}");
    }
}

#[test]
fn every_category_is_found_again() {
    for category in crate::table::CATEGORIES {
        for (rules, want) in [
            (format!("+@all -@{category}"), format!("+@all -@{category}")),
            (format!("+@{category}"), format!("-@all +@{category}")),
        ] {
            let want = format!("off resetchannels {want}");
            assert_eq!(description(&rules), want);
        }
    }
}

#[test]
fn users_survive_being_kept_and_described() {
    for rules in [
        "on >a >b ~* &* +@all -@dangerous +keys -config|set",
        "nopass %R~a %W~b ~c &x resetchannels &y -@all +@read +@hash -hget +select|0 +debug|object",
        "reset on (+@all ~x -set) (%R~y +get &z)",
        "on ~ & +get",
    ] {
        let user = user(rules);
        assert_eq!(User::decode(&user.encode()).as_ref(), Some(&user), "{rules}");
        let text = String::from_utf8(user.description()).expect("ASCII");
        let mut again = User::new(false);
        again.apply_all(&words(&text), false).expect("a description is rules");
        assert_eq!(again.description(), user.description(), "{rules}");
        let bytes = user.encode();
        for len in 0..bytes.len() {
            assert_eq!(User::decode(&bytes[..len]), None, "{rules}: {len}");
        }
    }
}

#[test]
fn wrong_rules_are_refused_in_redis_words_and_change_nothing() {
    let mut user = user("on +get ~a");
    let before = user.clone();
    user.apply_all(&words("off -get ~b nonsense"), false).expect_err("nonsense");
    assert_eq!(user, before);
    for (rules, want) in [
        ("nonsense", "Error in ACL SETUSER modifier 'nonsense': Syntax error"),
        ("+nosuch", "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL"),
        ("-@nosuch", "Error in ACL SETUSER modifier '-@nosuch': Unknown command or category name in ACL"),
        (
            "+config|asdf",
            "Error in ACL SETUSER modifier '+config|asdf': Unknown command or category name in ACL",
        ),
        ("-get|key1", "Error in ACL SETUSER modifier '-get|key1': Unknown command or category name in ACL"),
        (
            "+get|key1|key2",
            "Error in ACL SETUSER modifier '+get|key1|key2': Unknown command or category name in ACL",
        ),
        (
            "+config|get|x",
            "Error in ACL SETUSER modifier '+config|get|x': Allowing first-arg of a subcommand is not \
             supported",
        ),
        ("+select|", "Error in ACL SETUSER modifier '+select|': Syntax error"),
        ("%X~a", "Error in ACL SETUSER modifier '%X~a': Syntax error"),
        ("%~a", "Error in ACL SETUSER modifier '%~a': Syntax error"),
        ("%RR~a", "Error in ACL SETUSER modifier '%RR~a': Syntax error"),
        (
            "<none",
            "Error in ACL SETUSER modifier '<none': The password you are trying to remove from the user \
             does not exist",
        ),
        (
            "#12",
            "Error in ACL SETUSER modifier '#12': The password hash must be exactly 64 characters and \
             contain only lowercase hexadecimal characters",
        ),
        ("(", "Unmatched parenthesis in acl selector starting at '('."),
        (")", "Error in ACL SETUSER modifier ')': Syntax error"),
        ("(off)", "Error in ACL SETUSER modifier '(off)': Syntax error"),
        ("\" () \"", "Error in ACL SETUSER modifier ' () ': Syntax error"),
    ] {
        assert_eq!(refused(rules), format!("ERR {want}"), "{rules}");
    }
    assert!(refused("allkeys ~a").contains("Try 'resetkeys' to start"));
    assert!(refused("allchannels &a").contains("Try 'resetchannels' to start"));
}

#[test]
fn passwords_are_known_by_their_hashes() {
    let some = user("on >one >two");
    assert!(some.accepts(&PasswordHash::of(b"one")) && some.accepts(&PasswordHash::of(b"two")));
    assert!(!some.accepts(&PasswordHash::of(b"three")) && !some.accepts(&PasswordHash::of(b"")));
    assert!(!user(">one").accepts(&PasswordHash::of(b"one")), "off");
    assert!(user("on nopass").accepts(&PasswordHash::of(b"anything")));
    assert!(!user("on").accepts(&PasswordHash::of(b"")), "a user without passwords cannot come");
    assert!(
        User::default_user(None).is_open() && !User::default_user(Some(PasswordHash::of(b"x"))).is_open()
    );
}

#[test]
fn commands_keys_and_channels_are_checked() {
    let some = user(
        "+@read +set +bitfield +copy +eval +sort +config|get +publish +psubscribe ~rw* %R~r* %W~w* &c:*",
    );
    for (line, want) in [
        ("GET r", "OK"),
        ("GET w", "This user has no permissions to access the 'w' key"),
        ("MGET r rw x", "This user has no permissions to access the 'x' key"),
        ("DEL r", "This user has no permissions to run the 'del' command"),
        ("CONFIG GET x", "OK"),
        ("CONFIG SET x y", "This user has no permissions to run the 'config|set' command"),
        ("EXISTS r", "OK"),
        ("EXISTS w", "OK"),
        ("EXISTS none", "This user has no permissions to access the 'none' key"),
        ("SET w v", "OK"),
        ("SET w v GET", "This user has no permissions to access the 'w' key"),
        ("SET r v", "This user has no permissions to access the 'r' key"),
        ("BITFIELD r GET u4 0", "OK"),
        ("BITFIELD r OVERFLOW SAT GET u4 0", "OK"),
        ("BITFIELD r GET u4 0 SET u4 0 1", "This user has no permissions to access the 'r' key"),
        ("COPY r w", "OK"),
        ("COPY w r", "This user has no permissions to access the 'w' key"),
        ("EVAL body 1 rw", "OK"),
        ("EVAL body 1 r", "This user has no permissions to access the 'r' key"),
        ("EVAL body 3 rw r", "OK"),
        ("SORT r STORE w", "OK"),
        ("SORT r STORE r", "This user has no permissions to access the 'r' key"),
        ("AUTH x", "OK"),
    ] {
        assert_eq!(told(&some, line), want, "{line}");
    }
    let only = user("+ordo.idempotent +get ~a");
    assert_eq!(told(&only, "ORDO.IDEMPOTENT id GET a"), "OK");
    assert_eq!(
        told(&only, "ORDO.IDEMPOTENT id DEL a"),
        "This user has no permissions to run the 'ordo.idempotent' command"
    );
    assert_eq!(told(&only, "ORDO.IDEMPOTENT id GET b"), "This user has no permissions to access the 'b' key");
}

#[test]
fn the_selector_that_came_furthest_says_what_is_denied() {
    let some = user("+mget ~key (+mget ~key ~otherkey)");
    for (line, want) in [
        ("GET key", Denied::Command),
        ("MGET otherkey someotherkey", Denied::Key(2)),
        ("MGET key otherkey someotherkey", Denied::Key(3)),
    ] {
        let argv = words(line);
        let Ok(resolved) = table::resolve(&argv) else { panic!("{line}") };
        assert_eq!(check(&some, &resolved, &argv), Err(want), "{line}");
    }
}

#[test]
fn sort_by_other_keys_needs_to_read_all_keys() {
    let asked = |rules: &str, line: &str| {
        let argv = words(line);
        let Ok(resolved) = table::resolve(&argv) else { panic!("{line}") };
        check::sort_denied(&user(rules), &resolved, &argv)
    };
    for rules in ["(+sort ~l)", "(+sort ~l ~v*)", "(+sort ~l %W~*)", "(+get %R~*) (+sort ~l)"] {
        assert_eq!(asked(rules, "sort l by v*"), Some(crate::errors::SORT_BY_DENIED), "{rules}");
        assert_eq!(asked(rules, "sort l limit 0 1 get v"), Some(crate::errors::SORT_GET_DENIED));
        assert_eq!(asked(rules, "sort l by nosort alpha"), None);
    }
    assert_eq!(asked("(+sort ~l %R~*)", "sort l by v* get v*"), None);
    assert_eq!(asked("+@all ~*", "sort l by v*"), None);
}

#[test]
fn channels_are_matched_and_patterns_compared() {
    let some = user("+@all ~* &foo:1 &bar:*");
    let of = |channel: &str, is_pattern| some.selectors[0].allows_channel(channel.as_bytes(), is_pattern);
    assert!(of("foo:1", false) && of("bar:2", false) && !of("zap", false));
    assert!(of("bar:*", true) && of("foo:1", true) && !of("bar:baz", true));
    let subscriber = [(&b"foo:1"[..], false), (&b"bar:*"[..], true)];
    for (now, want) in [
        ("&foo:1 &bar:* &more", true),
        ("allchannels", true),
        ("&foo:* &bar:*", true),
        ("&foo:1", false),
        ("resetchannels", false),
    ] {
        assert_eq!(user(now).keeps_subscriber(&some, subscriber), want, "{now}");
    }
}

#[test]
fn a_file_is_taken_whole_or_not_at_all() {
    let text = b"user alice on allcommands allkeys &* >alice\r\n\n  user bob on -@all +@set (+get ~x )\n";
    let users = file::parse("f", text, false).expect("valid");
    let names: Vec<&[u8]> = users.iter().map(|(name, _)| name.as_bytes()).collect();
    assert_eq!(names, [&b"alice"[..], b"bob"]);
    let tail = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    for (text, want) in [
        ("user a on\nuser a off", "WARNING: Duplicate user 'a' found on line 2. "),
        ("# comment", "f:1 should start with user keyword followed by the username. "),
        ("user", "f:1 should start with user keyword followed by the username. "),
        (
            "user a +nosuch -nosuch",
            "f:1: Error in applying operation '+nosuch': Unknown command or category name in ACL. ",
        ),
        ("\nuser a secret", "f:2: Syntax error. "),
        ("user a (+get", "f:1: Unmatched parenthesis in selector definition."),
    ] {
        assert_eq!(file::parse("f", text.as_bytes(), false), Err(format!("{want}{tail}")));
    }
    let named = |texts: &[&str]| file::directives(texts.iter().copied(), false);
    assert_eq!(named(&["alice on +get", "default on nopass ~* +@all"]).map(|users| users.len()), Ok(2));
    assert!(named(&["foo", "foo"]).is_err_and(|error| error.contains("Duplicate user")));
    assert!(named(&["foo +nosuch"]).is_err() && named(&[""]).is_err() && named(&["'"]).is_err());
}

#[test]
fn a_request_says_who_acts_and_what() {
    let users = vec![(Blob::from("alice"), user("on +get ~a")), (Blob::from(""), user(""))];
    let block = crate::Block {
        commands: vec![words("GET a"), words("INCR b")],
        memory: Memory::Short,
        ..crate::Block::default()
    };
    for deed in [
        Deed::Command(words("EVAL x 0"), Memory::Ample),
        Deed::Command(words("EVAL x 0"), Memory::Short),
        Deed::Block(block),
        Deed::Replace(users.clone()),
        Deed::Introduce(users),
    ] {
        for name in [None, Some(Blob::from("alice")), Some(Blob::from(""))] {
            let acting = Acting {
                user: name,
                default: std::sync::Arc::new(User::default_user(Some(PasswordHash::of(b"x")))),
                all_channels: true,
                deed: deed.clone(),
            };
            let args = acting.to_args();
            assert_eq!(Acting::from_args(&args), Some(acting));
            assert_eq!(Acting::from_args(&[]), None);
            let cut = Blob::new(&args[0][..args[0].len() - 1]);
            assert_eq!(Acting::from_args(&[cut]), None);
        }
    }
}
