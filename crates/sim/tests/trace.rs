//! The trace of a world: what it shows, that it is well-formed whatever it shows, and that it stays small.
//!
//! `ORDO_BLESS=1` writes the golden files in `tests/trace` anew; look at them before committing.

use ordo_sim::draw::{Draw, seeds};
use ordo_sim::trace::{Event, Lane, TEXT_BYTES_MAX, Trace, printable};
use roxmltree::{Document, Node, ParsingOptions};
use std::path::Path;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

fn sent(id: u64, from: Lane, to: Lane, label: &str) -> Event {
    let label = label.to_owned();
    Event::Sent { id, from, to, label }
}

fn note(lane: Lane, text: &str) -> Event {
    let text = text.to_owned();
    Event::Note { lane, text }
}

fn fault(lane: Option<Lane>, text: &str) -> Event {
    let text = text.to_owned();
    Event::Fault { lane, text }
}

fn verdict(text: &str) -> Event {
    let text = text.to_owned();
    Event::Verdict { text }
}

/// One of everything.
fn example(events_max: usize) -> Trace {
    let mut trace = Trace::new(events_max);
    let [a, b, client] = ["host a", "host b", "client 1"].map(|name| trace.lane(name));
    let set = format!("SET {} \"<v>\" & more", printable(b"k\x00\xff\\"));
    let mut at = |us: u64, event| trace.push(us * MICROSECOND, event);
    at(0, note(a, "leads term 1"));
    at(10, sent(1, client, a, &set));
    at(260, Event::Arrived { id: 1 });
    at(260, sent(2, a, b, "append epoch 1"));
    at(300, sent(3, a, a, "timer: fsync"));
    at(700, Event::Arrived { id: 3 });
    at(700, note(a, "fsync done up to 1"));
    at(900, note(b, "a note that is too long for its box, and then some, and some more"));
    at(1_000, Event::Arrived { id: 2 });
    at(1_050, sent(4, b, a, "held epoch 1"));
    at(1_200, Event::Arrived { id: 2 });
    at(1_300, Event::Arrived { id: 4 });
    at(1_301, sent(5, a, client, "+OK"));
    at(2_000, fault(None, "partition {host a} | {host b, client 1}"));
    at(2_000, Event::Lost { id: 5, why: "partition" });
    at(12_500, fault(Some(b), "crash\n(power)"));
    at(12_500, sent(6, a, b, "append epoch 2"));
    at(12_600, Event::Arrived { id: 77 });
    at(
        13_000,
        verdict("client 1: SET k was not answered\n  expected: a reply within 10 ms\n  actual:   <none>"),
    );
    trace
}

fn check_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace").join(name);
    if std::env::var_os("ORDO_BLESS").is_some() {
        std::fs::write(&path, actual).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file can be read");
    for (index, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(expected, actual, "line {} of {name}; ORDO_BLESS=1 takes it over", index + 1);
    }
    assert!(expected == actual, "{name} ends otherwise");
}

#[test]
fn a_small_trace_is_shown_as_before() {
    check_golden("example.txt", &example(100).text());
    check_golden("example.svg", &example(100).svg());
}

/// A golden file says what was, not what is right: these are the promises about it.
#[test]
fn every_event_has_its_row_and_its_line() {
    let svg = example(100).svg();
    let document = Document::parse(&svg).expect("the diagram is XML");
    assert_eq!(by_class(&document, "row").len(), example(100).kept());
    let count = |class| by_class(&document, class).len();
    // Arrivals: 1, 3, 2, 2 again, 4; lost: 5; still under way: 6.
    assert_eq!(count("line"), 7);
    assert_eq!(count("again"), 1);
    assert_eq!(count("cross"), 1);
    assert_eq!(count("open"), 1);
    assert_eq!(count("life"), 3);
    assert_eq!((count("note"), count("fault"), count("verdict")), (3, 2, 1));
    // Both arrows of the copy that arrives twice start where it was sent, and end at its receiver, one below
    // the other.
    let arrows: Vec<_> = by_class(&document, "line")
        .into_iter()
        .filter(|line| line.attribute("data-message") == Some("2"))
        .map(|line| line.first_element_child().unwrap().attribute("d").unwrap())
        .map(|path| path.split_once('L').unwrap())
        .collect();
    assert_eq!(arrows.len(), 2);
    assert_eq!(arrows[0].0, arrows[1].0);
    assert!(arrows[0].1 < arrows[1].1, "{arrows:?}");
}

#[test]
fn the_text_says_what_became_of_each_message() {
    let text = example(100).text();
    for said in [
        "    0.260  host a <-- client 1  #1 SET k\\x00\\xff\\\\ \"<v>\" & more  [after 0.250 ms]",
        "    1.000  host b <-- host a    #2 append epoch 1  [after 0.740 ms]",
        "    1.200  host b <-- host a    #2 append epoch 1  [again after 0.940 ms]",
        "    2.000  host a --x client 1  #5 +OK  [lost after 0.699 ms: partition]",
    ] {
        let said = said.trim_start();
        assert!(text.lines().any(|line| line.trim_start() == said), "no {said:?} in\n{text}");
    }
}

#[test]
fn a_long_text_is_cut_and_its_title_is_whole() {
    let svg = example(100).svg();
    let document = Document::parse(&svg).expect("the diagram is XML");
    let long = "a note that is too long for its box, and then some, and some more";
    let row = by_class(&document, "row")
        .into_iter()
        .find(|row| title(*row).contains(long))
        .expect("a title has the whole note");
    let shown: Vec<_> = row.children().filter_map(|node| node.text()).collect();
    assert!(shown.iter().any(|text| text.starts_with("a note that") && text.ends_with('…')), "{shown:?}");
}

#[test]
fn what_is_kept_is_bounded_and_what_was_dropped_is_counted() {
    let mut trace = Trace::new(100);
    let (a, b) = (trace.lane("a"), trace.lane("b"));
    let long = "x".repeat(10 * TEXT_BYTES_MAX);
    let mut largest = 0;
    for id in 0..2_000 {
        trace.push(id, sent(id, a, b, &long));
        trace.push(id, Event::Arrived { id });
        trace.push(id, note(a, &long));
        assert!(trace.kept() <= 100);
        largest = largest.max(trace.kept());
    }
    assert_eq!((largest, trace.dropped()), (100, 5_900));
    let text = trace.text();
    assert!(text.starts_with("(5900 earlier events were dropped)\n"), "{}", &text[..60]);
    // Copies that never arrive are forgotten, too: what comes of them is told without their texts.
    assert!(text.len() < 110 * TEXT_BYTES_MAX);
    let memory = format!("{trace:?}").len();
    assert!(memory < 500 * TEXT_BYTES_MAX, "{memory} bytes are kept");
    assert!(trace.svg().contains(">5900 earlier events were dropped<"));
    assert!(trace.html("t", "h").contains(">5900 earlier events were dropped<"));

    let mut none = Trace::new(0);
    let lane = none.lane("a");
    none.push(1, sent(1, lane, lane, "x"));
    none.push(2, Event::Arrived { id: 1 });
    assert_eq!((none.kept(), none.dropped()), (0, 2));
    assert_well_formed(&none);
}

#[test]
fn an_arrival_says_what_arrived_when_its_departure_was_dropped() {
    let mut trace = Trace::new(3);
    let (a, b) = (trace.lane("a"), trace.lane("b"));
    trace.push(0, sent(1, a, b, "slow"));
    for at in 1..10 {
        trace.push(at * MILLISECOND, note(a, "works"));
    }
    trace.push(10 * MILLISECOND, Event::Arrived { id: 1 });
    assert!(trace.text().ends_with("10.000  b <-- a  #1 slow  [after 10.000 ms]\n"), "{}", trace.text());
    let svg = trace.svg();
    assert!(svg.contains(">slow · 10.000 ms<"), "{svg}");
    // Three more copies, and it is forgotten.
    for id in 2..5 {
        trace.push(11 * MILLISECOND, sent(id, a, b, "new"));
    }
    trace.push(12 * MILLISECOND, Event::Arrived { id: 1 });
    assert!(
        trace.text().ends_with("12.000  ?        #1 arrived: no longer known what it was\n"),
        "{}",
        trace.text()
    );
}

#[test]
fn an_id_that_is_used_again_is_the_newer_copys() {
    let mut trace = Trace::new(2);
    let (a, b) = (trace.lane("a"), trace.lane("b"));
    trace.push(0, sent(1, a, b, "old"));
    trace.push(0, Event::Arrived { id: 1 });
    trace.push(0, sent(1, b, a, "new"));
    // The old copy is forgotten here, the new one is not.
    trace.push(0, sent(2, a, b, "other"));
    trace.push(0, Event::Arrived { id: 1 });
    assert!(trace.text().ends_with("a <-- b  #1 new  [after 0.000 ms]\n"), "{}", trace.text());
}

#[test]
fn a_lane_keeps_its_place() {
    let mut trace = Trace::new(9);
    let (a, b) = (trace.lane("a"), trace.lane("b"));
    assert_eq!((a, b, trace.lane("a")), (Lane(0), Lane(1), Lane(0)));
}

#[test]
#[should_panic(expected = "Lane(1) is not a lane of this trace, which has 1")]
fn a_lane_of_another_trace_is_refused() {
    let mut trace = Trace::new(9);
    trace.lane("a");
    trace.push(0, sent(1, Lane(0), Lane(1), "x"));
}

/// What texts are made of: all that means something to XML, HTML, scripts, terminals and the columns.
const SHARDS: [&str; 24] = [
    "<",
    ">",
    "&",
    "\"",
    "'",
    "]]>",
    "<!--",
    "-->",
    "</script>",
    "</title>",
    "&amp;",
    "&#0;",
    "<?",
    "\0",
    "\x1b[31m",
    "\n",
    "\r\n",
    "\t",
    "\u{202e}",
    "\u{ffff}",
    "漢字",
    "e\u{301}",
    "🦀",
    "plain text ",
];

fn any_text(draw: &mut Draw) -> String {
    let shards = draw.pick(&[1, 3, 9, 90]);
    (0..draw.below(shards)).map(|_| draw.pick(&SHARDS)).collect()
}

fn any_trace(seed: u64) -> Trace {
    let mut draw = Draw::new(seed);
    let mut trace = Trace::new(draw.below(60) as usize);
    let lanes: Vec<Lane> = (0..draw.between(1, 12))
        .map(|number| trace.lane(&format!("{number}{}", any_text(&mut draw))))
        .collect();
    let mut at_ns = 0;
    for _ in 0..80 {
        at_ns += draw.below(3) * draw.below(5 * MILLISECOND);
        let text = any_text(&mut draw);
        let (lane, id) = (draw.pick(&lanes), draw.below(12));
        let event = match draw.below(12) {
            0..4 => sent(id, lane, draw.pick(&lanes), &text),
            4..8 => Event::Arrived { id },
            8 => Event::Lost { id, why: draw.pick(&SHARDS) },
            9 => note(lane, &text),
            10 => fault(draw.percent(50).then_some(lane), &text),
            _ => verdict(&text),
        };
        trace.push(at_ns, event);
    }
    trace
}

#[test]
fn whatever_the_texts_contain_the_markup_is_well_formed() {
    for seed in seeds(150) {
        let trace = any_trace(seed);
        assert_well_formed(&trace);
        let again = any_trace(seed);
        assert_eq!(
            (trace.text(), trace.svg(), trace.html("a", "b")),
            (again.text(), again.svg(), again.html("a", "b")),
            "seed {seed}"
        );
    }
}

/// What is shown is what was pushed, whatever it means to XML.
#[test]
fn texts_come_back_out_of_the_markup() {
    let hard = "\"quoted\" 'single' <b>&amp;</b> ]]> <!-- \x1b\0 漢字";
    let visible = "\"quoted\" 'single' <b>&amp;</b> ]]> <!-- \\x1b\\x00 漢字";
    let mut trace = Trace::new(9);
    let lane = trace.lane(hard);
    trace.push(0, fault(None, hard));
    trace.push(0, sent(1, lane, lane, hard));
    trace.push(0, note(lane, hard));
    trace.push(0, verdict(hard));
    let (svg, html) = (trace.svg(), trace.html(hard, hard));
    let page = parse(&html);
    for document in [&parse(&svg), &page] {
        let titles: Vec<_> = by_class(document, "row").into_iter().map(title).collect();
        assert_eq!(titles.len(), 4);
        for title in titles {
            assert!(title.contains(visible), "{title}");
        }
        for class in ["faulty", "found"] {
            let shown = by_class(document, class);
            let texts: String = shown.iter().filter_map(|node| node.text()).collect();
            // A verdict breaks lines at spaces.
            assert!(texts.replace(' ', "").starts_with(&visible.replace(' ', "")), "{texts}");
        }
    }
    for tag in ["h1", "pre"] {
        let node = page.descendants().find(|node| node.has_tag_name(tag)).unwrap();
        assert_eq!(node.text().map(str::trim), Some(visible));
    }
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let page = example(100).html("seed 7", "seed 7\noptions: 2 hosts\nordo sim --seed 7 | less");
    assert!(page.contains("<pre>\nseed 7\noptions: 2 hosts\nordo sim --seed 7 | less\n</pre>"));
    let document = parse(&page);
    for node in document.descendants() {
        for name in ["src", "href", "action"] {
            assert_eq!(node.attribute(name), None, "{node:?}");
        }
    }
    let namespace = "http://www.w3.org/2000/svg";
    let urls = page.replace(namespace, "");
    assert!(!urls.contains("://") && !urls.contains("@import") && !urls.contains("url("));
}

fn parse(markup: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..Default::default() };
    Document::parse_with_options(markup, options).expect("the markup is well-formed")
}

fn assert_well_formed(trace: &Trace) {
    let rows = trace.kept();
    for markup in [trace.svg(), trace.html("<a & \"b\">", "--seed '<1>' \u{1}\n&")] {
        let document = parse(&markup);
        assert_eq!(by_class(&document, "row").len(), rows);
        assert_apart(&document);
        // What a browser reads and XML does not: the text of a script ends at the first `</script`.
        assert!(markup.matches("</script").count() <= 1);
        assert!(!markup.chars().any(|letter| letter != '\n' && letter.is_control()));
    }
}

/// No row begins inside the one before it.
fn assert_apart(document: &Document) {
    let mut free = 0;
    for row in by_class(document, "row") {
        let mut parts = row.children();
        let band = parts.find(|node| node.attribute("class") == Some("band"));
        let band = band.expect("a row has a band");
        let number = |name| band.attribute(name).unwrap().parse::<i64>().unwrap();
        assert!(number("y") >= free, "{row:?} begins before {free}");
        free = number("y") + number("height");
    }
}

fn by_class<'a>(document: &'a Document, class: &str) -> Vec<Node<'a, 'a>> {
    document
        .descendants()
        .filter(|node| {
            node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
        })
        .collect()
}

fn title(row: Node) -> String {
    let title = row.first_element_child().expect("a row has a title");
    assert!(title.has_tag_name("title"));
    title.text().unwrap_or_default().to_owned()
}
