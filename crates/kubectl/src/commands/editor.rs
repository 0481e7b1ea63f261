//! The user's editor on a text: `$KUBE_EDITOR`, `$EDITOR` or vi.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{Error, Result};
use crate::text::flush;

/// The words of the editor's command line; one with quotes in it is for the shell.
fn words() -> Vec<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let editor = set("KUBE_EDITOR").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    if editor.contains(['"', '\'', '\\']) && editor.contains(' ') {
        return vec![set("SHELL").unwrap_or_else(|| "/bin/bash".to_owned()), "-c".to_owned(), editor];
    }
    editor.split(' ').map(str::to_owned).collect()
}

/// The text behind the edit, and the file that keeps it.
pub fn edit(text: &str, ending: &str) -> Result<(String, PathBuf)> {
    let made = tempfile::Builder::new().prefix("kubectl-edit-").suffix(ending).tempfile();
    let mut file = made.map_err(|error| Error::say(format!("cannot make a file to edit: {error}")))?;
    file.write_all(text.as_bytes()).map_err(|error| Error::say(format!("cannot write a file to edit: {error}")))?;
    let (_, path) = file.keep().map_err(|error| Error::say(format!("cannot keep a file to edit: {error}")))?;
    let mut words = words();
    let shown = words.join(" ");
    let name = words.remove(0);
    // With a shell, the file is part of what it reads.
    if let [flag, line] = &mut *words
        && flag == "-c"
    {
        line.push_str(&format!(" \"{}\"", path.display()));
    } else {
        words.push(path.display().to_string());
    }
    flush();
    match Command::new(&name).args(&words).status() {
        Ok(status) if status.success() => {}
        Ok(_) => {
            let _ = std::fs::remove_file(&path);
            return Err(Error::say(format!("there was a problem with the editor {shown:?}")));
        }
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            return Err(Error::say(match error.kind() {
                std::io::ErrorKind::NotFound if !name.contains('/') => format!("unable to launch the editor {shown:?}"),
                _ => format!("there was a problem with the editor {shown:?}"),
            }));
        }
    }
    let edited = std::fs::read_to_string(&path)
        .map_err(|error| Error::say(crate::config::file::go_error("open", &path, &error)))?;
    Ok((edited, path))
}
