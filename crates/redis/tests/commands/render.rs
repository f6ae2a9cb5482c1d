//! Replies as scenarios write them.

use ordo_redis::parse;
use txn::Reply;

fn join(items: &[Reply]) -> String {
    items.iter().map(render).collect::<Vec<_>>().join(", ")
}

/// The text of a reply.
pub fn render(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "nil".into(),
        Reply::NilArray => "nil*".into(),
        Reply::Status(text) => text.to_string(),
        Reply::Error(text) => format!("! {text}"),
        Reply::Integer(value) => value.to_string(),
        Reply::Double(value) => format!("{value:?}"),
        Reply::Decimal(value) => parse::plain_float_text(*value),
        Reply::Boolean(value) => value.to_string(),
        Reply::BigNumber(digits) => format!("({}", digits.escape_ascii()),
        Reply::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Verbatim(format, text) => format!("{format}:\"{}\"", text.escape_ascii()),
        Reply::Array(items) => format!("[{}]", join(items)),
        Reply::Set(items) => format!("<{}>", join(items)),
        Reply::Push(items) => format!(">[{}]", join(items)),
        Reply::Pairs(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("({}, {})", render(key), render(value))).collect();
            format!("[{}]", pairs.join(", "))
        }
        Reply::Told(told) => render(&told.reply),
        Reply::Map(pairs) | Reply::PairMap(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", render(key), render(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}
