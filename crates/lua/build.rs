//! Compiles the sources of the crate `lua-src`, with `ordo.patch` applied to them, into a static library.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Where the package manager has put the sources of a package.
fn package(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version", "1", "--filter-platform"])
        .arg(env::var("TARGET")?)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let found = packages.into_iter().find(|package| package["name"] == name);
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.ok_or_else(|| format!("cargo metadata does not name {name}"))?;
    let directory = Path::new(manifest).parent();
    Ok(directory.ok_or("a manifest is in a directory")?.to_owned())
}

/// Copies the sources, with the patch applied. Returns those that are to be compiled.
fn patched(sources: &Path, copies: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let all = fs::read_to_string("ordo.patch")?;
    let mut patches = Vec::new();
    for patch in all.split("--- a/").skip(1) {
        let (name, rest) = patch.split_once('\n').ok_or("a patch has lines")?;
        patches.push((name.to_owned(), format!("--- a/{name}\n{rest}")));
    }
    fs::create_dir_all(copies)?;
    let mut files = Vec::new();
    let mut applied = 0;
    for entry in fs::read_dir(sources)? {
        let name = entry?.file_name();
        let mut source = fs::read_to_string(sources.join(&name))?;
        for (_, patch) in patches.iter().filter(|(patched, _)| name == patched.as_str()) {
            source = diffy::apply(&source, &diffy::Patch::from_str(patch)?)?;
            applied += 1;
        }
        let copy = copies.join(&name);
        fs::write(&copy, source)?;
        if copy.extension() == Some(OsStr::new("c")) {
            files.push(copy);
        }
    }
    if applied != patches.len() {
        return Err("ordo.patch names files that lua-src does not have".into());
    }
    files.sort();
    Ok(files)
}

/// Has the blocks of `build` counted, and compiles what counts them.
fn count_blocks(build: &mut cc::Build) {
    println!("cargo:rerun-if-changed=blocks.c");
    println!("cargo:rerun-if-env-changed=ORDO_LUA_SANITIZE");
    build.flag("-fsanitize-coverage=trace-pc");
    // The count needs to see the calls of the C library's functions.
    build.flag("-U_FORTIFY_SOURCE");
    if let Ok(sanitizers) = env::var("ORDO_LUA_SANITIZE") {
        build.flag(format!("-fsanitize={sanitizers}"));
    }
    cc::Build::new()
        .file("blocks.c")
        .opt_level(2)
        // It defines functions that the compiler knows.
        .flag("-fno-builtin")
        .cargo_metadata(false)
        .compile("ordo_blocks");
    println!("cargo:rustc-link-lib=static:+whole-archive=ordo_blocks");
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=ordo.patch");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let copies = out.join("lua-5.1.5");
    let files = patched(&package("lua-src")?.join("lua-5.1.5"), &copies)?;
    let mut build = cc::Build::new();
    if env::var_os("CARGO_FEATURE_COUNT_BLOCKS").is_some() {
        count_blocks(&mut build);
    }
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("windows") {
        build.define("LUA_USE_LINUX", None);
    }
    build
        .files(files)
        .include(&copies)
        .warnings(false)
        // Scripts run in this, in tests too.
        .opt_level(2)
        // Replicas must compute the same numbers, whether or not the processor has fused operations.
        .flag_if_supported("-ffp-contract=off")
        .flag_if_supported("-fno-common")
        .cargo_metadata(false)
        .compile("ordo_lua51");
    println!("cargo:rustc-link-search=native={}", out.display());
    // Whole: the binding's objects, which need it, may come later on the linker's command line.
    println!("cargo:rustc-link-lib=static:+whole-archive=ordo_lua51");
    Ok(())
}
