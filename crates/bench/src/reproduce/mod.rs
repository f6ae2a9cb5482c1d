//! Reproduces the evaluations of papers: one directory with a JSON file and plots for each figure, and one
//! page with all of them.

pub mod archie;
pub mod figure;
pub mod hierarchy;
mod lab;
mod origin;
mod page;
pub mod pcsi;
mod plot;
pub mod qstore;
pub mod sparkle;
pub mod study;
mod worker;

use anyhow::{Context, Result};
use figure::Figure;
use std::path::{Path, PathBuf};

/// Writes what was found into a directory. Returns the page.
fn write(dir: &Path, title: &str, head: &[String], figures: &[Figure]) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let put = |name: String, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok::<PathBuf, anyhow::Error>(path)
    };
    let mut svgs = Vec::new();
    for figure in figures {
        let json = serde_json::to_string_pretty(figure)?;
        put(format!("figure-{}.json", figure.id), &json)?;
        let mut drawn = Vec::new();
        for (place, panel) in figure.panels.iter().enumerate() {
            let svg = plot::svg(panel)?;
            put(format!("figure-{}-{}.svg", figure.id, place + 1), &svg)?;
            drawn.push(svg);
        }
        svgs.push(drawn);
    }
    put("index.html".to_owned(), &page::page(title, head, figures, &svgs))
}
