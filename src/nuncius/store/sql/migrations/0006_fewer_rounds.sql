-- Takes from one queue for many receivers need fewer rounds. Only procedures change, they are made again after this;
-- some of them have other signatures.
drop function if exists nuncius.find_messages(
    integer[], integer[], integer[], integer[], integer[], smallint[], bigint[], bigint[]);
drop function if exists nuncius.join_requests(
    integer[], integer[], integer[], integer[], integer[], smallint[], integer[], bigint[]);
drop function if exists nuncius.find_own_messages(
    integer[], integer[], integer[], smallint[], bigint[], bigint[]);
