//! The numbers that the messages of `channel.k8s.io` WebSockets begin with.

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
/// How the command ended.
pub const ERROR: u8 = 3;
/// The size of the terminal.
pub const RESIZE: u8 = 4;
/// Ends the channel whose number follows; since version 5.
pub const CLOSE: u8 = 255;

/// A message as it is sent.
pub fn message(channel: u8, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(1 + data.len());
    message.push(channel);
    message.extend_from_slice(data);
    message
}
