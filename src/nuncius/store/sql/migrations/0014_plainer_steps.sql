-- A request to take is one value, and procedures that other procedures call have other signatures. They are made again
-- after this.
create type nuncius.take_request as (
    n integer,
    queue integer,
    receiver integer,
    sender integer,
    context integer,
    mode smallint,
    most bigint,
    shared bigint[],
    own bigint[],
    upto bigint[]
);
drop function if exists nuncius.find_messages(
    integer[], integer[], integer[], integer[], integer[], smallint[], bigint[], bigint[], bigint[]);
drop function if exists nuncius.find_own_messages(
    integer[], integer[], integer[], integer[], smallint[], integer[], bigint[]);
drop function if exists nuncius.is_level(bigint[], integer);
drop function if exists nuncius.few_messages(integer, integer, integer, bigint, bigint);
drop function if exists nuncius.first_messages(
    tid[], bigint, boolean, integer[], integer[], integer[], integer[], smallint[]);
drop function if exists nuncius.join_requests(
    integer[], integer[], integer[], integer[], integer[], smallint[], integer[], bigint[]);
drop function if exists nuncius.publish_posts(text, text[], bytea[]);
