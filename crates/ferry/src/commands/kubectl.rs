//! `ferry kubectl …`, and this program under the name kubectl.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What kubectl is asked for; None where another command is.
pub fn arguments(all: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let mut all = all.peekable();
    let name = all.next()?;
    let by_name = Path::new(&name).file_name() == Some(OsStr::new("kubectl"));
    if !by_name {
        all.next_if(|first| first == "kubectl")?;
    }
    Some(all.map(|word| word.to_string_lossy().into_owned()).collect())
}

/// `ferry get`: kubectl's, and `--live`, which kubectl does not have.
pub fn get(arguments: &[String]) -> std::process::ExitCode {
    let (live, rest) = live(arguments);
    let code = match live {
        true => ferry_kubectl::live(&rest),
        false => ferry_kubectl::main(&["get".to_owned()].into_iter().chain(rest).collect::<Vec<_>>()),
    };
    code.into()
}

/// Whether the table is to stay, and what else is asked for. What stands behind `--` is no flag.
fn live(arguments: &[String]) -> (bool, Vec<String>) {
    let flags = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let asked = arguments[..flags].iter().any(|word| word == "--live");
    let rest = arguments.iter().enumerate().filter(|(at, word)| *at >= flags || *word != "--live");
    (asked, rest.map(|(_, word)| word.clone()).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn live_is_the_one_flag_of_its_own() {
        let of = |line: &str| super::live(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("pods --live -A"), (true, vec!["pods".to_owned(), "-A".to_owned()]));
        assert_eq!(of("pods -- --live"), (false, vec!["pods".to_owned(), "--".to_owned(), "--live".to_owned()]));
    }

    #[test]
    fn the_name_or_the_first_word_is_kubectl() {
        let of = |line: &[&str]| super::arguments(line.iter().map(Into::into));
        assert_eq!(of(&["/usr/bin/kubectl", "get", "pods"]), Some(vec!["get".to_owned(), "pods".to_owned()]));
        assert_eq!(
            of(&["ferry", "kubectl", "-n", "x", "get"]),
            Some(vec!["-n".to_owned(), "x".to_owned(), "get".to_owned()])
        );
        assert_eq!(of(&["ferry", "up", "kubectl"]), None);
        assert_eq!(of(&["ferry"]), None);
    }
}
