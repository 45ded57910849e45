#!/usr/bin/env perl
# A worker of a consumer group with Perl's own modules only.
# usage: PENSTOCK_URL=http://127.0.0.1:8080 perl worker.pl GROUP TOPIC MEMBER
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

my ($group, $topic, $member) = @ARGV;
my $url = "$ENV{PENSTOCK_URL}/v1/groups/$group/members/$member";
my $json = JSON::PP->new->utf8->allow_nonref->canonical;
my $http = HTTP::Tiny->new(timeout => 30, default_headers => { 'Content-Type' => 'application/json' });
$| = 1;    # each line at once

sub work {
    my ($record) = @_;
    print $json->encode($record->{value}), "\n";
}

sub leave { $http->delete($url); exit 0 }    # the other members get the partitions at once
$SIG{TERM} = $SIG{INT} = \&leave;

my $token = '';
while (1) {
    my $body = $json->encode({ topics => [$topic], token => $token, wait_ms => 20_000 });
    my $response = $http->post("$url/poll", { content => $body });
    my $answer = eval { $json->decode($response->{content}) };
    if (ref $answer ne 'HASH') { sleep 1; next }    # no answer: the same request once more
    if (($answer->{code} // '') eq 'stale_token') { $token = ''; next }
    if (!$answer->{token}) { print STDERR "$answer->{detail}\n"; sleep 1; next }
    for my $partition (@{ $answer->{partitions} }) {
        work($_) for @{ $partition->{records} // [] };
    }
    $token = $answer->{token};    # the next poll commits these records
}
