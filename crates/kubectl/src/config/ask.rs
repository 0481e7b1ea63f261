//! The name and the password of somebody whom the configuration does not tell anything of.

use std::io::Read;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::{Chosen, connect};
use crate::error::{Error, Result};
use crate::text::{flush, print};

/// Whether the server cannot know who asks. In plain text nobody is asked for a password.
fn needed(chosen: &Chosen) -> bool {
    let given = |field: &str| chosen.user[field].as_str().is_some_and(|text| !text.is_empty());
    let text = ["username", "token", "tokenFile", "client-certificate", "client-certificate-data"];
    let known = text.into_iter().any(given) || ["exec", "auth-provider"].iter().any(|f| chosen.user[*f].is_object());
    !known && !connect::is_in_cluster(chosen) && connect::server_url(chosen).starts_with("https://")
}

/// What was chosen, with what was typed.
pub fn completed(chosen: &Chosen) -> Result<Option<Chosen>> {
    if !needed(chosen) {
        return Ok(None);
    }
    prompt("Username");
    let name = word().ok_or_else(|| Error::say("EOF"))?;
    prompt("Password");
    let password = hidden_line().ok_or_else(|| Error::say("error reading input for Password"))?;
    let mut chosen = chosen.clone();
    chosen.user["username"] = name.into();
    chosen.user["password"] = password.into();
    Ok(Some(chosen))
}

fn prompt(field: &str) {
    print(format!("Please enter {field}: "));
    flush();
}

/// One byte after the other: what stands behind the name is the password.
fn byte() -> Option<u8> {
    let mut one = [0];
    matches!(std::io::stdin().lock().read(&mut one), Ok(1)).then_some(one[0])
}

fn word() -> Option<String> {
    let mut text = Vec::new();
    loop {
        match byte() {
            Some(byte) if byte.is_ascii_whitespace() => {
                if !text.is_empty() {
                    return String::from_utf8(text).ok();
                }
            }
            Some(byte) => text.push(byte),
            None => return String::from_utf8(text).ok().filter(|text| !text.is_empty()),
        }
    }
}

/// None where standard input is no terminal: a password is not read from a pipe.
fn hidden_line() -> Option<String> {
    let stdin = rustix::stdio::stdin();
    let before = tcgetattr(stdin).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(stdin, OptionalActions::Now, &silent).ok()?;
    let mut text = Vec::new();
    while let Some(byte) = byte().filter(|byte| *byte != b'\n') {
        text.push(byte);
    }
    let _ = tcsetattr(stdin, OptionalActions::Now, &before);
    String::from_utf8(text).ok()
}
